"""From what a user gives to the parts of a graph: one id space for all node types, one list of edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph import checks as validate
from weft.graph.ids import NodeIds
from weft.graph.sparse import Features
from weft.graph.topology import Topology

EdgeType = tuple[str, str, str]
PLAIN_EDGE: EdgeType = ("node", "edge", "node")


@dataclass(frozen=True)
class Parts:
    """Everything a graph holds, already checked against each other."""

    topology: Topology
    node_data: dict[str, dict[str, Features]]
    edge_data: dict[str, Tensor]
    """Values of edges by name, in the user's order unless `edge_data_is_canonical`."""
    node_types: list[str] = field(default_factory=lambda: ["node"])
    node_offsets: list[int] = field(default_factory=list)
    """The first row of each node type and the number of nodes."""
    edge_types: list[EdgeType] = field(default_factory=lambda: [PLAIN_EDGE])
    edge_columns: dict[str, list[int | None]] = field(default_factory=dict)
    """Where relations differ in edge data: the columns each has of a name (0: one value, None: nothing)."""
    node_ids: dict[str, NodeIds] = field(default_factory=dict)
    target_type: str | None = None
    edge_data_is_canonical: bool = False


def without_names(node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> bool:
    """Return whether there is one node type and relations have no names: what PyG holds in a `Data`."""
    named = [kind[1] for kind in edge_types]
    numbers = [str(relation) for relation in range(len(named))]
    return list(node_types) == ["node"] and (named == ["edge"] or (len(named) > 1 and named == numbers))


def from_edges(
    edge_index: Any,
    nodes: Mapping[str, Any],
    edges: Mapping[str, Any],
    *,
    num_nodes: int | None = None,
    edge_type: Any = None,
    num_relations: int | None = None,
    node_ids: Any = None,
    check: bool = True,
) -> Parts:
    """Return the parts of a graph of one node type."""
    ends = validate.as_edge_index(edge_index, check=check)
    count, counted = validate.infer_num_nodes(num_nodes, ends, {**nodes, "node_ids": node_ids})
    if check:
        validate.check_edge_range(ends, count, count, counted=counted)
    edge_types = [PLAIN_EDGE]
    if edge_type is not None:
        edge_type, relations = validate.as_edge_type(edge_type, ends.shape[1], num_relations)
        edge_types = [("node", str(relation), "node") for relation in range(relations)]
    elif num_relations not in (None, 1):
        raise GraphError(f"num_relations={num_relations} needs edge_type, the relation of each edge")
    if len(edge_types) == 1:
        edge_type, edge_types = None, [PLAIN_EDGE]
    return Parts(
        Topology.from_edges(count, ends, edge_type),
        node_data={"node": validate.as_node_data(nodes, count, check=check)},
        edge_data={
            name: validate.as_edge_data(value, ends.shape[1], name, check=check)
            for name, value in edges.items()
            if value is not None
        },
        node_offsets=[0, count],
        edge_types=edge_types,
        node_ids={} if node_ids is None else {"node": NodeIds(node_ids, count)},
    )


def from_types(
    nodes: Mapping[str, Mapping[str, Any]],
    edges: Mapping[EdgeType, Any],
    *,
    target_type: str | None = None,
    check: bool = True,
) -> Parts:
    """Return the parts of a graph of several node types and relations."""
    ends = {kind: _edge_store(kind, store, nodes, check) for kind, store in edges.items()}
    counts = _count_nodes(nodes, {kind: store["edge_index"] for kind, store in ends.items()})
    offsets = [0]
    for kind in nodes:
        offsets.append(offsets[-1] + counts[kind])
    if target_type is not None and target_type not in nodes:
        raise GraphError(f"target_type {target_type!r} is not a node type; there are: {', '.join(nodes)}")
    if offsets[-1] == 0:
        raise GraphError("a graph needs at least one node, all node types are empty")
    edge_index, edge_type = _joined_edges(ends, counts, dict(zip(nodes, offsets)), check)
    edge_data, columns = _joined_edge_data(list(ends.values()), check)
    node_data = {}
    for kind, store in nodes.items():
        values = {name: value for name, value in store.items() if name not in ("num_nodes", "node_ids")}
        node_data[kind] = validate.as_node_data(values, counts[kind], kind, check=check)
    ids = {kind: store["node_ids"] for kind, store in nodes.items() if store.get("node_ids") is not None}
    return Parts(
        Topology.from_edges(offsets[-1], edge_index, edge_type if len(ends) > 1 else None),
        node_data=node_data,
        edge_data=edge_data,
        node_types=list(nodes),
        node_offsets=offsets,
        edge_types=list(ends) or [(next(iter(nodes)), "edge", next(iter(nodes)))],
        edge_columns=columns,
        node_ids={kind: NodeIds(given, counts[kind], kind) for kind, given in ids.items()},
        target_type=target_type,
    )


def _edge_store(kind: Any, store: Any, nodes: Mapping[str, Mapping[str, Any]], check: bool) -> dict[str, Any]:
    """Return the edge index and the data of one relation by weft's names."""
    if not (isinstance(kind, tuple) and len(kind) == 3 and all(isinstance(part, str) for part in kind)):
        raise GraphError(f"an edge type is a (source, relation, target) triple of strings, got {kind!r}")
    for end in (kind[0], kind[2]):
        if end not in nodes:
            raise GraphError(f"edge type {kind} names node type {end!r}; there are: {', '.join(nodes)}")
    values = dict(store) if isinstance(store, Mapping) else {"edge_index": store}
    if values.get("edge_index") is None:
        raise GraphError(f"edge type {kind} has no edge_index")
    index = validate.as_edge_index(values.pop("edge_index"), f"edge_index of {kind}", check=check)
    data = {edge_name(name): value for name, value in values.items() if value is not None}
    return {"edge_index": index, "kind": kind, "data": data}


def edge_name(name: str) -> str:
    """Return weft's name for PyG's name of edge data: weight, attr, time; others stay as they are."""
    return name.removeprefix("edge_") if name in ("edge_weight", "edge_attr", "edge_time") else name


def _count_nodes(nodes: Mapping[str, Mapping[str, Any]], ends: Mapping[EdgeType, Tensor]) -> dict[str, int]:
    counts = {}
    if not nodes:
        raise GraphError("a graph needs at least one node type")
    for kind, store in nodes.items():
        given = store.get("num_nodes")
        if given is None:
            held = [value for value in store.values() if value is not None]
            rows = [value.shape[0] if hasattr(value, "shape") else len(value) for value in held]
            used = [ends[e][row] for e in ends for row, end in ((0, e[0]), (1, e[2])) if end == kind]
            highest = max((validate.highest_id(row) for row in used), default=-1)
            given = rows[0] if rows else highest + 1
            validate.check_room(given, f"an edge names the {kind!r} {highest:,}")
        if int(given) != given or given < 0:
            raise GraphError(f"num_nodes of {kind!r} must be a whole number of at least 0, got {given}")
        counts[kind] = int(given)
    validate.check_room(sum(counts.values()), "node types together")
    return counts


def _joined_edges(
    ends: Mapping[EdgeType, dict[str, Any]], counts: Mapping[str, int], first: Mapping[str, int], check: bool
) -> tuple[Tensor, Tensor]:
    """Return all edges in the one id space, in the order of the relations, and the relation of each."""
    joined, kinds = [torch.empty(2, 0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int32)]
    for relation, (kind, store) in enumerate(ends.items()):
        index = store["edge_index"]
        if check:
            validate.check_edge_range(index, counts[kind[0]], counts[kind[2]], f"edge_index of {kind}")
        shift = torch.tensor([[first[kind[0]]], [first[kind[2]]]], device=index.device)
        joined.append(index.long() + shift)
        kinds.append(torch.full((index.shape[1],), relation, dtype=torch.int32, device=index.device))
    return torch.cat(joined, 1), torch.cat(kinds)


def _joined_edge_data(
    stores: Sequence[dict[str, Any]], check: bool
) -> tuple[dict[str, Tensor], dict[str, list[int | None]]]:
    """Return edge data over all relations; what one lacks is a weight of 1, no label, else 0."""
    names = dict.fromkeys(name for store in stores for name in store["data"])
    joined, columns = {}, {}
    for name in names:
        parts = [_edge_values(store, name, check) for store in stores]
        widths = [None if part is None else _columns(part, name) for part in parts]
        tails = {part.shape[1:] for part in parts if part is not None}
        if len(tails) > 1 or None in widths:
            columns[name] = widths
        width = max(width for width in widths if width is not None)
        tail = next(iter(tails)) if len(tails) == 1 else torch.Size([max(width, 1)])
        dtype = next(part.dtype for part in parts if part is not None)
        sizes = [store["edge_index"].shape[1] for store in stores]
        filled = [_fill(part, size, tail, dtype, name) for part, size in zip(parts, sizes)]
        joined[name] = torch.cat(filled)
    return joined, columns


def _edge_values(store: dict[str, Any], name: str, check: bool) -> Tensor | None:
    value = store["data"].get(name)
    if value is None:
        return None
    label = f"edge_{name} of {store['kind']}"
    return validate.as_edge_data(value, store["edge_index"].shape[1], name, label=label, check=check)


def _columns(part: Tensor, name: str) -> int:
    if part.dim() > 2:
        raise GraphError(f"edge data {name!r} must have shape (E,) or (E, columns), got {tuple(part.shape)}")
    return part.shape[1] if part.dim() == 2 else 0


def _fill(part: Tensor | None, size: int, tail: torch.Size, dtype: torch.dtype, name: str) -> Tensor:
    if part is not None and part.shape[1:] == tail and part.dtype == dtype:
        return part
    none = float("nan") if dtype.is_floating_point else -1 if dtype.is_signed else 0
    fill = 1 if name == "weight" else none if name in ("label", "split") else 0
    filled = torch.full((size, *tail), fill, dtype=dtype)
    if part is not None and part.numel():
        part = part.reshape(size, -1).to(dtype)
        filled.reshape(size, -1)[:, : part.shape[1]] = part
        if name == "weight":
            return filled
        filled.reshape(size, -1)[:, part.shape[1] :] = 0
    return filled
