"""What every layer stands on: the registry, the base class, a linear map of dense or sparse rows.

A layer is given a `Block` and the rows the caller holds, and returns one row for each destination. It never
knows whether the block is a whole graph, a shard or a sample: degrees are those of the whole graph, self
loops are already there (`Layer.self_loops` asks for them), and draws are keyed by global ids. Parameters
have PyG's names, shapes and initial values wherever the same layer exists there, so weights can be copied
both ways.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.registry import Registry

if TYPE_CHECKING:
    from weft.graph.views import GraphView

Blocks = Block | Sequence[Block]
Reduce = Literal["sum", "mean", "max", "min"]


@dataclass(frozen=True)
class GraphInfo:
    """What a model must know of a graph before it is built."""

    in_features: Mapping[str, int] = field(default_factory=dict)
    """Width of x for each node type; 0 where a type has no features."""
    num_nodes: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes of each type."""
    num_classes: int = 0
    """Number of classes, or of labels where a node has several."""
    node_types: tuple[str, ...] = ("node",)
    """Node types, in the order of their rows."""
    edge_types: tuple[tuple[str, str, str], ...] = (("node", "edge", "node"),)
    """(source type, relation, target type) of each relation."""
    num_relations: int = 1
    """Number of relations."""
    edge_features: int = 0
    """Width of the edge attribute; 0 where edges have none."""
    target_type: str = "node"
    """The node type that targets are of."""

    @classmethod
    def of(cls, graph: "GraphView") -> Self:
        """Return what a model must know of this graph."""
        ends = graph.node_offsets
        attr = graph.edge_data.get("attr")
        x = {t: graph.node_data.get(t, {}).get("x") for t in graph.node_types}
        return cls(
            in_features={t: 0 if v is None else _width(v) for t, v in x.items()},
            num_nodes={t: ends[i + 1] - ends[i] for i, t in enumerate(graph.node_types)},
            num_classes=graph.num_classes if graph.is_labelled else 0,
            node_types=tuple(graph.node_types),
            edge_types=tuple(graph.edge_types),
            num_relations=len(graph.edge_types),
            edge_features=0 if attr is None else _width(attr),
            target_type=graph.target_type,
        )

    @property
    def out_features(self) -> int:
        """The columns that a model gives for a node."""
        return self.num_classes

    def giving(self, columns: int) -> Self:
        """Return the same for a model that gives so many columns for a node."""
        return replace(self, num_classes=columns)

    def as_recorded(self, counts: Mapping[str, Any]) -> Self:
        """Return the same for the graph that a model was trained on, of which a run keeps some counts."""
        return replace(self, num_classes=int(counts["num_classes"]))


class Layer(nn.Module):
    """One graph convolution: `layer(block, h)` gives [num_dst, out_features]."""

    hops: int = 1
    """How many blocks a call takes; a layer of several hops is given a list of them."""
    self_loops: bool = False
    """Whether a node is among its own neighbours in the published layer: weft then adds the loops."""
    output_is_free: bool = False
    """Whether a caller may overwrite the output: backward of the layer does not look at it."""
    stays_wide: bool = False
    """Whether every layer of a stack is `hidden` wide, and a linear map after the last gives the output."""
    takes_edge_features: bool = False
    """Whether the constructor has an option `edge_features` that `stacked` should set from the graph."""

    def __init__(self, in_features: int | None = None, out_features: int | None = None) -> None:
        super().__init__()
        given = {"in_features": in_features, "out_features": out_features}
        require_positive(self, **{name: value for name, value in given.items() if value is not None})
        self.in_features = in_features or 0
        self.out_features = out_features or 0

    @property
    def out_width(self) -> int:
        """Columns of the output."""
        return self.out_features

    @property
    def edge_width(self) -> int:
        """Values that are made of the features of an edge, all edges at once."""
        return 0

    @classmethod
    def stacked(
        cls, in_features: int, out_features: int, *, hidden: int, layers: int, info: GraphInfo, **options: Any
    ) -> list["Layer"]:
        """Return `layers` layers from in_features to out_features, `hidden` wide between them."""
        widths = [in_features, *[hidden] * (layers - 1), out_features]
        options = cls.options_of(info) | options
        return [cls(a, b, **options) for a, b in itertools.pairwise(widths)]

    @classmethod
    def options_of(cls, info: GraphInfo) -> dict[str, Any]:
        """Return the options that follow from the graph."""
        return {"edge_features": info.edge_features} if cls.takes_edge_features else {}

    def forward(self, block: Any, h: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


layers: Registry[type[Layer]] = Registry("layer", "weft.layers")


class Linear(nn.Module):
    """A linear map of dense or sparse rows, with PyG's two initialisations."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, glorot: bool = False
    ) -> None:
        super().__init__()
        require_positive(self, in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.glorot = glorot
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: Glorot's uniform range, or 1/sqrt(in_features) as torch.nn.Linear does."""
        bound = 1.0 / math.sqrt(self.in_features)
        if self.glorot:
            glorot_(self.weight)
        else:
            nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, h: Features) -> Tensor:
        return linear(h, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def linear(h: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return h weightᵀ + bias; weight is [out, in] as in torch.nn.functional.linear, h dense or sparse."""
    if isinstance(h, Tensor):
        return F.linear(h, weight, bias)
    out = h.matmul(weight.t())
    return out if bias is None else out.add_(bias)


def aggregate_linear(
    block: Block,
    h: Features,
    matrix: Tensor,
    reduce: Reduce = "sum",
    *,
    bias: Tensor | None = None,
    **scales: Any,
) -> Tensor:
    """Return reduce over neighbours of h matrixᵀ, plus bias, by the cheaper of the two orders.

    Aggregating first pays when the aggregate is remembered (h is the graph's own input) or the input is
    narrower than the output; otherwise the transformed rows are what travels.
    """
    if aggregates_first(block, h, matrix):
        return linear(block.aggregate(h, reduce, **scales), matrix, bias)
    out = block.aggregate(linear(h, matrix), reduce, **scales)
    return out if bias is None else out.add_(bias)


def aggregates_first(block: Block, h: Features, weight: Tensor) -> bool:
    """Return whether (A h) W is cheaper than A (h W): the product A h is remembered or the narrower side."""
    if block.prefers_aggregate_first(h):
        return True
    return isinstance(h, Tensor) and weight.shape[1] <= weight.shape[0]


def gcn_scales(block: Block, dtype: torch.dtype) -> dict[str, Any]:
    """Return the weights and scales of D^-1/2 A D^-1/2 with whole-graph in-degrees (PyG's gcn_norm)."""
    weighted = block.has_edge("weight")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    # The very same tensors each time: a block remembers an aggregate by the identity of its arguments.
    scales = {
        "src_scale": block.cached(("gcn", "src", wide), lambda: _gcn_scale(block, "src", weighted, wide)),
        "dst_scale": block.cached(("gcn", "dst", wide), lambda: _gcn_scale(block, "dst", weighted, wide)),
    }
    return scales | {"weight": block.edge("weight")} if weighted else scales


def _gcn_scale(block: Block, rows: Literal["src", "dst"], weighted: bool, dtype: torch.dtype) -> Tensor:
    return inverse_sqrt(block.in_degree(rows, weighted=weighted).to(dtype))


def inverse_sqrt(degree: Tensor) -> Tensor:
    """Return degree^-1/2, and 0 where the degree is 0."""
    return degree.pow(-0.5).masked_fill_(degree <= 0, 0.0)


def typed_rows(block: Block, rows: Literal["src", "dst"]) -> list[tuple[str, slice]]:
    """Return (node type, range of rows) in the order of the rows."""
    return block.typed_rows(rows)


def held_rows(block: Block, h: Features) -> Literal["src", "dst"]:
    """Return which rows h holds: destinations with a shard, sources with a sample."""
    return "src" if h.shape[0] == block.num_src else "dst"


def hop_blocks(layer: Layer, blocks: Blocks) -> list[Block]:
    """Return one block for each hop of the layer; a single block (a whole graph, a shard) serves all hops."""
    given = [blocks] if isinstance(blocks, Block) else list(blocks)
    if len(given) == 1:
        return given * layer.hops
    if len(given) != layer.hops:
        raise InputError(
            f"{type(layer).__name__}: expected 1 or {layer.hops} blocks, one a hop, got {len(given)}"
        )
    return given


def edge_attr(owner: object, block: Block) -> Tensor:
    """Return the edge attribute as [E, D], or say that the graph has none."""
    if not block.has_edge("attr"):
        raise InputError(
            f"{type(owner).__name__} was built with edge features but the graph has no edge_attr"
        )
    attr: Tensor = block.edge("attr")
    return attr[:, None] if attr.dim() == 1 else attr


def dense(h: Features) -> Tensor:
    """Return h as an ordinary tensor."""
    return h if isinstance(h, Tensor) else h.to_dense()


def number_draws(model: nn.Module) -> None:
    """Give each module that draws random numbers its own stream, in the order of model.modules()."""
    drawing = [module for module in model.modules() if isinstance(getattr(module, "draw_layer", None), int)]
    for number, module in enumerate(drawing):
        module.draw_layer = number  # type: ignore[assignment]


def glorot_(value: Tensor) -> None:
    """Fill in place with Glorot's uniform values over the last two dimensions."""
    bound = math.sqrt(6.0 / (value.shape[-2] + value.shape[-1]))
    nn.init.uniform_(value, -bound, bound)


def unit_rows(rows: Tensor) -> Tensor:
    """Return rows scaled to length 1; one that is 0 stays, and its gradient passes as it is.

    `F.normalize` would multiply that gradient by 10¹², and whatever it is of rounding with it.
    """
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    scaled: Tensor = rows / torch.where(length > torch.finfo(rows.dtype).tiny, length, 1.0)
    return scaled


def require_positive(owner: object, **values: Any) -> None:
    """Raise unless every named value is a positive integer."""
    kind = owner if isinstance(owner, type) else type(owner)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise InputError(f"{kind.__name__}: {name} must be a positive integer, got {value!r}")


def require_probability(owner: object, **values: Any) -> None:
    """Raise unless every named value is a number in [0, 1)."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
            raise InputError(f"{type(owner).__name__}: {name} must be in [0, 1), got {value!r}")


def require_choice(owner: object, choices: Sequence[str | None], **values: Any) -> None:
    """Raise unless every named value is one of the choices."""
    for name, value in values.items():
        if value not in choices:
            known = ", ".join(map(str, choices))
            raise InputError(f"{type(owner).__name__}: {name} must be one of {known}, got {value!r}")


def _width(value: Any) -> int:
    return int(value.shape[1]) if len(value.shape) > 1 else 1
