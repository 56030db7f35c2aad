"""To and from PyTorch Geometric: `Data` and `HeteroData`, in both directions without loss.

Edge data has PyG's names there (edge_weight, edge_attr) and weft's here (weight, attr). Times of edges come
as `edge_time` or `time`; they leave as `edge_time` in a `Data`, where `time` would be taken for a node's, and
as `time` in a `HeteroData`. PyG itself is imported only to build its objects.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from weft.errors import GraphError
from weft.graph import build
from weft.graph.checks import SPLITS
from weft.graph.sparse import Features, SparseFeatures
from weft.registry import require

if TYPE_CHECKING:
    from weft.graph.graph import Graph

_NODE = ("x", "y", *SPLITS)
_EDGE = ("edge_weight", "edge_attr", "edge_time")


def parts_of(data: Any, *, check: bool = True) -> build.Parts:
    """Return the parts of a graph from a `Data` or a `HeteroData`."""
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        return _parts_of_hetero(data, check)
    if not hasattr(data, "edge_index") or not hasattr(data, "to_dict"):
        raise GraphError(f"expected a PyG Data or HeteroData, got {type(data).__name__}")
    store = data.to_dict()
    _require_edge_index(store, "the Data")
    nodes: dict[str, Any] = {}
    edges: dict[str, Any] = {}
    for name, value in store.items():
        if name in _NODE:
            nodes[name] = value
        elif name in _EDGE or (isinstance(value, Tensor) and name not in _OTHER and data.is_edge_attr(name)):
            edges[build.edge_name(name)] = value
        elif isinstance(value, Tensor) and name not in _OTHER and data.is_node_attr(name):
            nodes[name] = value
    return build.from_edges(
        store["edge_index"],
        nodes,
        edges,
        num_nodes=data.num_nodes,
        edge_type=store.get("edge_type"),
        num_relations=store.get("num_relations"),
        check=check,
    )


_OTHER = ("edge_index", "edge_type", "num_nodes")


def data_of(graph: "Graph") -> Any:
    """Return a `Data` for a plain graph and a `HeteroData` for one with named types."""
    require("torch_geometric", "pyg")
    return _data_of_plain(graph) if graph.is_plain else _data_of_hetero(graph)


def _parts_of_hetero(data: Any, check: bool) -> build.Parts:
    nodes: dict[str, dict[str, Any]] = {}
    for kind in data.node_types:
        store = data[kind]
        values = {name: value for name, value in store.items() if _is_data(value)}
        nodes[kind] = values | ({} if store.num_nodes is None else {"num_nodes": store.num_nodes})
    edges: dict[Any, dict[str, Any]] = {}
    for kind in data.edge_types:
        _require_edge_index(data[kind], f"edge type {kind}")
        edges[kind] = {name: value for name, value in data[kind].items() if _is_data(value)}
    return build.from_types(nodes, edges, check=check)


def _require_edge_index(store: Any, where: str) -> None:
    if "edge_index" not in store:
        hint = "; undo ToSparseTensor: row, col, _ = adj_t.t().coo()" if "adj_t" in store else ""
        raise GraphError(f"{where} has no edge_index{hint}")


def _is_data(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _data_of_plain(graph: "Graph") -> Any:
    from torch_geometric.data import Data

    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    for name, value in graph.node_data["node"].items():
        data[name] = _tensor(value)
    for name, value in graph.given_edge_data().items():
        data[f"edge_{name}" if name in ("weight", "attr", "time") else name] = value
    kinds = graph.given_edge_type()
    if kinds is not None:
        data.edge_type, data.num_relations = kinds.long(), graph.num_relations
    return data


def _data_of_hetero(graph: "Graph") -> Any:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for kind in graph.node_types:
        rows = graph.rows_of_type(kind)
        data[kind].num_nodes = rows.stop - rows.start
        for name, value in graph.node_data[kind].items():
            data[kind][name] = _tensor(value)
    edge_index, kinds, edge_data = graph.edge_index, graph.given_edge_type(), graph.given_edge_data()
    for relation, edge_kind in enumerate(graph.edge_types):
        chosen: Any = slice(None) if kinds is None else kinds == relation
        shift = edge_index.new_tensor(
            [[graph.rows_of_type(end).start] for end in (edge_kind[0], edge_kind[2])]
        )
        data[edge_kind].edge_index = edge_index[:, chosen] - shift
        for name, value in edge_data.items():
            part = _columns_of(graph, name, relation, value[chosen])
            if part is not None:
                data[edge_kind][f"edge_{name}" if name in ("weight", "attr") else name] = part
    return data


def _columns_of(graph: "Graph", name: str, relation: int, part: Tensor) -> Tensor | None:
    """Return edge data as the relation had it before relations were joined; None where it had none."""
    if name not in graph.edge_columns:
        return part
    columns = graph.edge_columns[name][relation]
    if columns is None or part.dim() == 1:
        return None if columns is None else part
    return part[:, 0] if columns == 0 else part[:, :columns]


def _tensor(value: Features) -> Tensor:
    return value.to_torch() if isinstance(value, SparseFeatures) else value
