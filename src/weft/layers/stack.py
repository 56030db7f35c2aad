"""Stack: the usual model, several layers of one kind with what goes between them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Blocks, GraphInfo, Layer, Linear, number_draws, require_choice, require_positive
from weft.layers.base import (
    layers as registry,
)
from weft.layers.dropout import Dropout
from weft.layers.encoder import Encoder, TypedFeatures
from weft.registry import suggest

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "tanh": torch.tanh,
    "none": lambda h: h,
}


class Stack(nn.Module):
    """Layers of one kind and what goes between them, called as `model(blocks, x)`.

    `blocks` is one block for all layers (a whole graph, a shard) or a list with `Layer.hops` blocks a
    layer. `hidden` is the whole width between layers, heads together. A graph of several node types, or
    without features, is encoded to `hidden` first (`info` says what it holds). `embedding`, {width = 64,
    types = [...]}, gives every node, or those of some types, a learned row beside its features. `options` go
    to the layer.
    """

    def __init__(
        self,
        in_features: int | Mapping[str, int],
        out_features: int,
        *,
        layer: str = "sage",
        layers: int = 2,
        hidden: int = 64,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        norm: Literal["batch", "layer"] | None = None,
        residual: bool = False,
        jumping: Literal["cat", "max", "sum"] | None = None,
        activation: str = "relu",
        embedding: Mapping[str, Any] | None = None,
        info: GraphInfo | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        require_positive(self, out_features=out_features, layers=layers, hidden=hidden)
        require_choice(self, (None, "batch", "layer"), norm=norm)
        require_choice(self, (None, "cat", "max", "sum"), jumping=jumping)
        require_choice(self, tuple(ACTIVATIONS), activation=activation)
        kind = registry[layer]
        _check_options(kind, layer, options)
        self.settings = {
            "layer": layer,
            "layers": layers,
            "hidden": hidden,
            "dropout": dropout,
            "input_dropout": input_dropout,
            "norm": norm,
            "residual": residual,
            "jumping": jumping,
            "activation": activation,
            "embedding": embedding,
            **options,
        }
        """What it was made with, for the record of a run."""
        self.jumping = jumping
        self.activation = activation
        self.encoder, width = _encoder(in_features, hidden, info, embedding)
        projected = jumping is not None or kind.stays_wide
        built = kind.stacked(
            width,
            hidden if projected else out_features,
            hidden=hidden,
            layers=layers,
            info=info or GraphInfo(),
            **(_own_dropout(kind, dropout) | options),
        )
        self.layers = nn.ModuleList(built)
        widths = [one.out_width for one in built]
        between = len(widths) if projected else len(widths) - 1
        self.input_drop = Dropout(input_dropout or 0.0)
        self.drops = nn.ModuleList(Dropout(dropout) for _ in range(between))
        self.norms = nn.ModuleList(_norm(norm, width) for width in widths[:between])
        self.residuals = nn.ModuleList()
        if residual:
            self.residuals.extend(_residual(one.in_features, width) for one, width in zip(built, widths))
        self.final = Linear(sum(widths) if jumping == "cat" else hidden, out_features) if projected else None
        number_draws(self)

    @property
    def hops(self) -> int:
        """The number of blocks a call takes when they are given as a list."""
        return sum(_hops(one) for one in self.layers)

    @property
    def self_loops(self) -> bool:
        """Whether the layers expect self loops in the graph."""
        return any(bool(one.self_loops) for one in self.layers)

    def forward(self, blocks: Blocks, x: TypedFeatures) -> Tensor:
        """Return [num_dst of the last block, out_features]."""
        groups = self._groups(blocks)
        h: Any = x
        outputs: list[Tensor] = []
        for number, group in enumerate(groups):
            h = self.run_layer(number, group, h)
            if self.jumping:
                outputs = [_through(group, kept) for kept in outputs] + [h]
        return self.finish(outputs if self.jumping else [h])

    def run_layer(self, number: int, group: Sequence[Block], h: Any) -> Tensor:
        """Return the rows after one layer and what follows it, [num_dst of the last block of the group, …].

        Layer 0 is given x. `forward` runs one after the other on what each gives; a caller that keeps the
        rows of all nodes in between can run each over the whole graph, piece by piece.
        """
        if number == 0:
            if self.encoder is None:
                self._check_width(h)
            else:
                h = self.encoder(group[0], h)
            h = self.input_drop(group[0], h)
        return self._layer(number, self.layers[number], group, h)

    def finish(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return the output from the rows after every layer, or after the last alone where none jump."""
        h = self.join(outputs)
        out: Tensor = h if self.final is None else self.final(h)
        return out

    def join(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return the rows that the map after the last layer reads, from what `finish` is given."""
        return _jump(list(outputs), self.jumping) if self.jumping else outputs[-1]

    def _check_width(self, x: Any) -> None:
        """Refuse features of another width than the first layer takes."""
        expected = self.layers[0].in_features
        if x is None:
            raise InputError(
                "Stack: the graph has no features x; info=GraphInfo.of(graph) makes it learn one row per node"
            )
        if len(x.shape) > 1 and x.shape[1] != expected:
            raise InputError(f"Stack: x has {x.shape[1]} features a node, the model was made for {expected}")

    def _layer(self, number: int, layer: nn.Module, group: Sequence[Block], h: Features) -> Tensor:
        out: Tensor = layer(group[0] if _hops(layer) == 1 else group, h)
        if number < len(self.norms):
            out = self._activate(layer, self.norms[number](out))
        if len(self.residuals):
            out = out + self.residuals[number](_through(group, h))
        if number < len(self.drops):
            out = self.drops[number](group[-1], out, rows="dst")
        return out

    def _activate(self, layer: nn.Module, out: Tensor) -> Tensor:
        if self.activation == "relu" and layer.output_is_free:
            return out.relu_()  # one matrix of the size of the output less to write
        return ACTIVATIONS[self.activation](out)

    def _groups(self, blocks: Blocks) -> list[Sequence[Block]]:
        """Return the blocks of each layer."""
        given = [blocks] if isinstance(blocks, Block) else list(blocks)
        if len(given) == 1:
            given = given * self.hops
        if len(given) != self.hops:
            raise InputError(f"Stack: expected 1 or {self.hops} blocks, one a hop, got {len(given)}")
        groups: list[Sequence[Block]] = []
        for layer in self.layers:
            groups.append(given[: _hops(layer)])
            given = given[_hops(layer) :]
        return groups


def _hops(layer: nn.Module) -> int:
    return int(getattr(layer, "hops", 1))


def _through(group: Sequence[Block], h: Any) -> Any:
    """Return the rows of h that are still there after these blocks."""
    for block in group:
        h = block.dst(h)
    return h


def _jump(outputs: list[Tensor], how: str | None) -> Tensor:
    if how == "cat":
        return torch.cat(outputs, dim=1)
    stacked = torch.stack(outputs)
    return stacked.sum(dim=0) if how == "sum" else stacked.amax(dim=0)


def _norm(norm: str | None, width: int) -> nn.Module:
    if norm is None:
        return nn.Identity()
    return nn.BatchNorm1d(width) if norm == "batch" else nn.LayerNorm(width)


def _residual(in_features: int, out_features: int) -> nn.Module:
    return nn.Identity() if in_features == out_features else Linear(in_features, out_features, bias=False)


def _encoder(
    in_features: int | Mapping[str, int],
    hidden: int,
    info: GraphInfo | None,
    embedding: Mapping[str, Any] | None,
) -> tuple[Encoder | None, int]:
    """Return the encoder a graph needs, if any, and the width that the first layer sees."""
    typed = info is not None and (len(info.node_types) > 1 or not all(info.in_features.values()))
    if isinstance(in_features, int) and not typed and embedding is None:
        require_positive(Stack, in_features=in_features)
        return None, in_features
    if not isinstance(in_features, int | Mapping):
        raise InputError(
            f"Stack: in_features must be a whole number, or one a node type, got {in_features!r}"
        )
    if info is None:
        what = "learned rows need" if embedding is not None else "a graph of several node types needs"
        raise InputError(f"Stack: {what} info=GraphInfo.of(graph)")
    return Encoder(info, hidden, embedding=embedding), hidden


def _own_dropout(kind: type[Layer], dropout: float) -> dict[str, Any]:
    """Return the stack's dropout for layers that are whole models with dropout of their own."""
    return {"dropout": dropout} if "dropout" in inspect.signature(kind.__init__).parameters else {}


def _check_options(kind: type[Layer], name: str, options: Mapping[str, Any]) -> None:
    known = {*inspect.signature(kind.__init__).parameters, *inspect.signature(kind.stacked).parameters}
    known -= {"self", "in_features", "out_features", "info", "options"}
    for option in options:
        if option not in known:
            shown = ", ".join(sorted(known - {"hidden", "layers"}))
            raise InputError(
                f"layer {name!r} has no option {option!r}; {suggest(option, known)}known: {shown}"
            )
