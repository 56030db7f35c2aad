"""A small graph whole, and in two halves: the trial that every wrapped PyG convolution must pass."""

import copy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from weft.compiler.tracing.held import undisturbed
from weft.errors import WeftError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.message.crossing import crossed
from weft.graph.message.reduction import Propagation
from weft.interop.pyg.own_rows import NotCovered
from weft.interop.pyg.weighing import NEITHER, found

if TYPE_CHECKING:
    from weft.interop.pyg.layer import PyG

_TOLERANCE = 1e-5  # in float64; what is wrong is wrong by more than 1e-3 of the scale
_FAILURES = (
    WeftError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    IndexError,
    KeyError,
)


def problem(layer: "PyG", call: str) -> str:
    """Return why the convolution, called this way, cannot run on blocks; empty if it can."""
    trial = copy.deepcopy(layer).double().eval()
    trial.become(call)
    graph = _graph(trial)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), undisturbed(trial.conv.forward):
            own = _own_result(trial, graph)
            whole = trial(graph.block(), graph.x)
            halves = torch.cat([trial(block, graph.x[block.src_ids]) for block in _halves(graph)])
    except _FAILURES as error:
        first_line = (str(error).splitlines() or [""])[0]
        return f"on a small graph it fails with {type(error).__name__}: {first_line[:200]}"
    if not own.shape == whole.shape == halves.shape:
        return f"a small graph gives shape {tuple(own.shape)}, its two halves {tuple(halves.shape)}"
    difference = max(_distance(halves, own), _distance(whole, own))
    if difference <= _TOLERANCE:
        layer.out_features = own.shape[1] if layer.in_features else 0
        layer.weighs = _weighs(trial, graph)
        return ""
    return f"on two halves of a small graph it differs by {difference:.1e} from the whole"


def own_width(layer: "PyG") -> int:
    """Return the numbers of a row that travel where each half of a small graph has its own rows alone.

    0 where the convolution does not give the same so.
    """
    trial = copy.deepcopy(layer).double().eval()
    graph = _graph(trial)
    whole = graph.block()
    given: dict[str, Any] = {"num_src": 12, "edge_type": whole.edge_type, "edge_data": graph.edge_data}
    given |= {"num_relations": whole.num_relations, "degrees": whole.degree_source}
    every = _OwnRowsBlock(whole.indptr, whole.indices, **given)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), undisturbed(trial.conv.forward):
            expected = trial(whole, graph.x)
            found = trial.on_own_rows(every, graph.x)
            halves = []
            for block in _halves(graph, _OwnRowsBlock):
                cast(_OwnRowsBlock, block).there = every.asked
                halves.append(trial.on_own_rows(block, graph.x[block.dst_ids]))
    except (*_FAILURES, NotCovered):
        return 0
    same = all(_distance(each, expected) <= _TOLERANCE for each in (found, torch.cat(halves)))
    return sum(each[0].numel() for each in every.asked) if same else 0


class _OwnRowsBlock(Block):
    """A part of a graph whose rows of others are those that were asked for on the whole."""

    rows_are_own = True
    there: list[Tensor] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[Tensor] = []

    def src(self, h: Any) -> Any:
        """Return own rows and those of others, in the order of calls."""
        self.asked.append(h)
        if self.there is None:
            return h
        rows = self.there[len(self.asked) - 1][self.src_ids]
        assert torch.allclose(rows[: self.num_dst], h, rtol=_TOLERANCE), (
            "what a row becomes depends on others"
        )
        return rows

    def _propagate(self, how: Propagation) -> Tensor:
        return super()._propagate(crossed(how, lambda h: False))


def _weighs(trial: "PyG", graph: Graph) -> str:
    """Return how messages are weighed where edges stand for others."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), undisturbed(trial.conv.forward):
            return found(trial, graph, _TOLERANCE)
    except _FAILURES:
        return NEITHER


def _own_result(trial: "PyG", graph: Graph) -> Tensor:
    """Return what the convolution itself gives on the whole graph, called the way PyG's users do."""
    graph = graph.remove_self_loops() if trial.self_loops else graph
    out = trial.conv(graph.x, graph.block().edge_index(), **trial.edge_values(graph.block(), torch.float64))
    return out if isinstance(out, Tensor) else torch.empty(0)


def _distance(got: Tensor, expected: Tensor) -> float:
    gap = (got - expected).abs().nan_to_num(nan=float("inf")).max()
    return float(gap / max(1.0, float(expected.abs().max())))


def _graph(trial: "PyG") -> Graph:
    """Return a directed graph of 12 nodes with a hub, an isolated node and what edge values are taken."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, 11, (2, 40), generator=generator)
    pairs[1, :8] = 2
    pairs = torch.unique(pairs[:, pairs[0] != pairs[1]], dim=1)
    count, width = pairs.shape[1], _edge_width(trial.conv)
    data: dict[str, Any] = {}
    if "edge_weight" in trial.arguments:
        data["edge_weight"] = torch.randint(1, 16, (count,), generator=generator).double() / 8
    if "edge_attr" in trial.arguments and width:
        data["edge_attr"] = torch.rand(count, width, generator=generator, dtype=torch.float64)
    if "edge_type" in trial.arguments:
        relations = int(getattr(trial.conv, "num_relations", 1))
        data |= {"edge_type": torch.arange(count) % relations, "num_relations": relations}
    x = torch.randn(12, trial.in_features or 4, generator=generator, dtype=torch.float64)
    graph = Graph.from_edges(pairs, num_nodes=12, x=x, **data)
    return graph.add_self_loops() if trial.self_loops else graph


def _halves(graph: Graph, kind: type[Block] = Block) -> list[Block]:
    """Return two blocks: destinations 0 … 5 and 6 … 11, each followed by the other sources of its edges."""
    whole = graph.block()
    blocks = []
    for rows in (torch.arange(0, 6), torch.arange(6, 12)):
        first, last = int(whole.indptr[rows[0]]), int(whole.indptr[rows[-1] + 1])
        sources = whole.indices[first:last].long()
        others = torch.unique(sources[~torch.isin(sources, rows)])
        ids = torch.cat([rows, others])
        place = torch.empty(12, dtype=torch.long)
        place[ids] = torch.arange(len(ids))
        blocks.append(
            kind(
                whole.indptr[rows[0] : rows[-1] + 2] - first,
                place[sources],
                num_src=len(ids),
                src_ids=ids,
                edge_ids=torch.arange(first, last),
                edge_type=None if whole.edge_type is None else whole.edge_type[first:last],
                num_relations=whole.num_relations,
                edge_data=graph.edge_data,
                degrees=whole.degree_source,
            )
        )
    return blocks


def network_width(conv: nn.Module) -> int | None:
    """Return the input width of the first linear map inside; EdgeConv's sees both ends of an edge."""
    for module in conv.modules():
        width = getattr(module, "in_features", getattr(module, "in_channels", None))
        if isinstance(width, int) and module is not conv:
            return width // 2 if type(conv).__name__ == "EdgeConv" else width
    return None


def _edge_width(conv: Any) -> int:
    """Return the width of edge attributes that the convolution takes; 0 for none."""
    name = type(conv).__name__
    if name == "GINEConv":
        return int(network_width(conv) if conv.lin is None else conv.lin.in_channels)  # type: ignore[arg-type]
    if name in ("NNConv", "ECConv"):
        return network_width(conv) or 0
    width = getattr(conv, "dim" if name in ("GMMConv", "CGConv") else "edge_dim", None)
    return width if isinstance(width, int) else 0
