"""Stages of a model of the user's own class, found by tracing its `forward`.

`torch.fx` follows `model(blocks, x)` with layers and norms as they are. Between two layers everything has to
be done row by row; then what a layer gives, and earlier rows that are still read later, are all that has to
be kept of a node. These columns side by side are the rows that one stage hands to the next.
"""

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx._symbolic_trace import PH

from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.row_ranges import some_edges
from weft.interop.pyg.layer import PyG
from weft.layers.base import Layer, Linear, dense
from weft.layers.dropout import Dropout
from weft.layers.encoder import Encoder
from weft.strategies.call import evaluating

BY_ROW = (
    *(nn.Linear, Linear, nn.Identity, nn.LayerNorm, nn.BatchNorm1d, nn.Dropout),
    *(nn.ReLU, nn.ELU, nn.GELU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.PReLU, nn.SELU),
    *(nn.LogSoftmax, nn.Softmax),
)
"""Modules that give the same for a row whatever the others are; a softmax along columns."""
_FUNCTIONS: set[Any] = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pow),
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv),
    *(torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.abs, torch.exp, torch.sqrt, torch.pow),
    *(torch.relu, torch.tanh, torch.sigmoid, torch.clamp),
    *(F.relu, F.elu, F.gelu, F.leaky_relu, F.selu, F.silu, F.tanh, F.sigmoid, F.softplus, F.hardtanh),
    *(F.dropout, F.layer_norm, F.linear),
}
_FUNCTIONS_OF_COLUMNS: set[Any] = {
    *(F.softmax, F.log_softmax, F.normalize, torch.softmax, torch.log_softmax, torch.cat)
}
_METHODS = {
    *("relu", "relu_", "tanh", "sigmoid", "abs", "exp", "neg", "sqrt", "clamp", "float", "double"),
    *("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_"),
}
_METHODS_OF_COLUMNS = {"softmax", "log_softmax"}
X = "x"  # the name of the features in a trace


def trace(
    model: nn.Module, *, training: bool = False, wrapped: Mapping[str, PyG] | None = None
) -> "SlicedModel":
    """Return the steps of a model called as `model(blocks, x)` or `model(x, edge_index)`, or say why not.

    They are those of its evaluation, or of its training; `wrapped` are its convolutions as layers, where they
    were made before.
    """
    name = type(model).__name__
    hops = [int(getattr(part, "hops", 1)) for part in _layers_of(model)]
    if not hops:
        raise InputError(f"{name} has no layer of weft and no PyG convolution: nothing tells where one ends")
    first = next(iter(inspect.signature(model.forward).parameters), "")
    blocks = {} if first == X else {first: [PH] * sum(hops)}
    try:
        with evaluating(model):
            model.train(training)
            graph = _Tracer().trace(model, concrete_args=blocks)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} cannot be cut into layers, its forward cannot be followed ({reason}); give weft.infer "
            "its layers as a list, or a fanout, with which any model is run on samples ([-1, -1] takes all "
            "edges)"
        ) from None
    return SlicedModel(model, [ForwardStep.of(node) for node in graph.nodes], wrapped)


def _layers_of(module: nn.Module) -> Iterator[nn.Module]:
    """Give the layers and PyG convolutions of a model, but not what is inside them."""
    if _is_layer(module):
        yield module
        return
    for child in module.children():
        yield from _layers_of(child)


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, Layer) or _is_convolution(module)


def _is_convolution(module: nn.Module) -> bool:
    return any(kind.__module__.startswith("torch_geometric.nn.conv") for kind in type(module).__mro__)


class _Tracer(fx.Tracer):
    """Follows a forward; layers, and what torch calls modules, are one step each."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf = isinstance(m, (Dropout, Encoder, *BY_ROW)) or _is_layer(m)
        return leaf or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True)
class Value:
    """What a step gave, by its name."""

    name: str


@dataclass(frozen=True)
class ForwardStep:
    """One step of a forward, as plain values that travel to other processes."""

    name: str
    op: str
    target: Any
    args: Any
    kwargs: Any
    reads: tuple[str, ...]

    @classmethod
    def of(cls, node: fx.Node) -> "ForwardStep":
        """Return a node of a trace."""
        named: Any = lambda leaf: Value(leaf.name) if isinstance(leaf, fx.Node) else leaf  # noqa: E731
        args, kwargs = (fx.node.map_aggregate(part, named) for part in (node.args, node.kwargs))
        name = X if node.op == "placeholder" and node.target == X else node.name
        return cls(name, node.op, node.target, args, kwargs, tuple(n.name for n in node.all_input_nodes))


class SlicedModel:
    """The steps of a model between its layers."""

    def __init__(
        self, model: nn.Module, steps: Sequence[ForwardStep], wrapped: Mapping[str, PyG] | None = None
    ) -> None:
        self.model = model
        self.inputs = {step.name for step in steps if step.op == "placeholder"}
        self.steps = {step.name: step for step in steps if step.op != "placeholder"}
        if X not in self.inputs:
            raise InputError(f"{type(model).__name__}: expected forward(blocks, x), it has no argument x")
        self.wrapped: dict[str, PyG] = dict(wrapped or {})
        """Convolutions as layers."""
        for step in self.steps.values():
            module = self._module(step)
            if module is not None and _is_convolution(module):
                self.wrapped[step.target] = PyG(module)
        self.layers = [name for name, step in self.steps.items() if isinstance(self._module(step), Layer)]
        for step in self.steps.values():
            self._check(step)
        self.end = next(reversed(self.steps))
        self.carried = [self._live_after(index) for index in range(len(self.layers))]
        """After each layer, what of earlier rows is still read, the layer's own rows last."""

    def layer(self, number: int) -> Layer:
        """Return the layer of a stage."""
        layer = self._module(self.steps[self.layers[number]])
        assert isinstance(layer, Layer)
        return layer

    def check(self, graph: Graph) -> None:
        """Refuse a graph in which a convolution would see other self loops than in its own model.

        It adds those that are missing for itself alone, and a piece of a graph does not tell which are.
        """
        modules = {**dict(self.model.named_modules()), **self.wrapped}
        adds = [name for name, layer in modules.items() if isinstance(layer, PyG) and layer.self_loops]
        count = sum(int((src == dst).sum()) for src, dst in some_edges(graph.indptr, graph.indices))
        if adds and 0 < count < graph.num_nodes:
            raise InputError(
                f"{adds[0]} adds the self loops that are missing, and {count:,} of {graph.num_nodes:,} nodes "
                "have one: call graph.add_self_loops() or graph.remove_self_loops() first"
            )

    def widths(self, number: int) -> list[int]:
        """Return the columns of what is carried after a stage; 0: those of x."""
        known = {name: self.layer(number).out_width for number, name in enumerate(self.layers)}
        return [known.get(name, 0) for name in self.carried[number]]

    def run(self, number: int, blocks: Sequence[Block], inputs: Any) -> Tensor:
        """Return what is carried after a stage, for the destinations of its last block, side by side."""
        made = self._begin(number, inputs)
        for name in [*self._between(number), self.layers[number]]:
            made[name] = self._do(self.steps[name], made, blocks)
        count = blocks[-1].num_dst
        carried = [made[name] for name in self.carried[number]]
        if any(isinstance(rows, dict) for rows in carried):
            raise InputError("x of several node types is read after the first layer; encode it before")
        parts = [dense(rows[:count]) for rows in carried]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def finish(self, inputs: Any) -> Tensor:
        """Return the output from what is carried after the last stage."""
        made = self._begin(len(self.layers), inputs)
        for name in self._between(len(self.layers)):
            made[name] = self._do(self.steps[name], made, [])
        out: Tensor = made[self.end]
        return out

    # Underneath

    def _begin(self, number: int, inputs: Any) -> dict[str, Any]:
        """Return the values that a stage begins with: x, or the columns that the one before handed on."""
        if number == 0:
            return {X: inputs}
        widths = self.widths(number - 1)
        widths = [width or inputs.shape[1] - sum(widths) for width in widths]
        return dict(zip(self.carried[number - 1], inputs.split(widths, dim=1), strict=True))

    def _between(self, number: int) -> list[str]:
        """Return the steps that the layer of a stage, or the output, needs beyond what it begins with."""
        known = {X} if number == 0 else set(self.carried[number - 1])
        end = self.end if number == len(self.layers) else self.layers[number]
        needed = self._needed([end], known)
        return [name for name in self.steps if name in needed and name not in self.layers]

    def _needed(self, ends: Sequence[str], known: set[str]) -> set[str]:
        """Return the steps that lead from known values to ends, these included."""
        names: set[str] = set()
        ask = [name for name in ends if name not in known]
        while ask:
            name = ask.pop()
            if name not in names and name not in self.inputs:
                names.add(name)
                ask += [other for other in self.steps[name].reads if other not in known]
        return names

    def _live_after(self, number: int) -> list[str]:
        """Return the rows, x and outputs of layers, that are read after a layer, and its own."""
        before = [X, *self.layers[:number]]
        known = {*before, self.layers[number]}
        later = self._needed([*self.layers[number + 1 :], self.end], known)
        read = {name for step in later for name in self.steps[step].reads}
        return [name for name in before if name in read] + [self.layers[number]]

    def _do(self, step: ForwardStep, made: dict[str, Any], blocks: Sequence[Block]) -> Any:
        """Return the value of a step."""
        module = self._module(step)
        if isinstance(module, Layer):
            return module(blocks[0] if module.hops == 1 else blocks, made[self._rows(step)])
        if isinstance(module, Dropout):  # which is off
            return made[self._rows(step)]

        def value(item: Any) -> Any:
            if not isinstance(item, Value):
                return item
            return made[item.name] if item.name in made else blocks[0]  # an encoder asks for a block

        arguments, options = (fx.node.map_aggregate(part, value) for part in (step.args, step.kwargs))
        if step.op == "output":
            return _only(arguments[0])
        if step.op == "get_attr":
            return operator.attrgetter(step.target)(self.model)
        if step.op == "call_method":
            return getattr(arguments[0], step.target)(*arguments[1:], **options)
        return (step.target if module is None else module)(*arguments, **options)

    def _rows(self, step: ForwardStep) -> str:
        """Return whose rows a layer reads: `conv(h, edge_index)` has them first, `layer(block, h)` last."""
        rows = [name for name in step.reads if name == X or name not in self.inputs]
        if len(rows) != 1:
            raise InputError(f"{step.target}: expected a call as layer(block, h), with one h")
        return rows[0]

    def _module(self, step: ForwardStep) -> nn.Module | None:
        if step.op != "call_module":
            return None
        # Looked up each time: a strategy may have put another norm in its place.
        return self.wrapped.get(step.target) or self.model.get_submodule(step.target)

    def _check(self, step: ForwardStep) -> None:
        """Refuse a step that may read other rows than its own."""
        if isinstance(self._module(step), Layer | Dropout):
            self._rows(step)
        if not self._by_row(step):
            name = str(getattr(step.target, "__name__", step.target))
            raise InputError(
                f"{type(self.model).__name__} cannot be cut into layers: {name!r} between them may mix rows; "
                "expected linear maps, norms, dropout, activations, sums and concatenations of columns"
            )

    def _by_row(self, step: ForwardStep) -> bool:
        if step.op in ("output", "get_attr"):
            return True
        module = self._module(step)
        if module is not None:
            along = not isinstance(module, nn.Softmax | nn.LogSoftmax) or module.dim in (1, -1)
            return along and isinstance(module, (Layer, Dropout, Encoder, *BY_ROW))
        if step.op == "call_method":
            return step.target in _METHODS or (step.target in _METHODS_OF_COLUMNS and _of_columns(step))
        return step.target in _FUNCTIONS or (step.target in _FUNCTIONS_OF_COLUMNS and _of_columns(step))


def _only(output: Any) -> Any:
    """Return the output of a forward: one, in a list where blocks came in one."""
    if isinstance(output, list | tuple):
        if len(output) != 1:
            raise InputError(f"the model gives {len(output)} outputs, expected one row per node")
        return output[0]
    return output


def _of_columns(step: ForwardStep) -> bool:
    """Return whether a function that takes `dim` is told to work along columns."""
    position, default = (2, 1) if step.target is F.normalize else (1, None)
    return step.kwargs.get("dim", step.args[position] if len(step.args) > position else default) in (1, -1)
