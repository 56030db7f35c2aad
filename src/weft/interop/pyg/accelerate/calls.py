"""A call of PyG's `propagate` or `edge_updater` as a message of a block: tensors, and a function of them."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from weft.compiler.graphs import value
from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.trace import RowCount
from weft.graph.message.block import Block
from weft.graph.message.compiled import compiled_of
from weft.graph.message.propagate import contribute
from weft.graph.message.reduction import OWN, Propagation, times_rows
from weft.interop.pyg.accelerate.adjacency import adjacency, plain
from weft.interop.pyg.accelerate.edge_updates import EdgeUpdate, EdgeValues, Form
from weft.interop.pyg.accelerate.swap import HOOKS, NotCovered

_NUMBERS = frozenset(["index", "edge_index_i"])
"""The names under which a message is given the number of each edge's row."""
_SIZES = frozenset(["size_i", "dim_size"])
"""The names under which it is given the number of rows."""
WHOLE = frozenset(["size", "size_j", "edge_index", "edge_index_j"])
"""What a message that is compiled does not get."""
_SCRATCH = frozenset(["_alpha"])
"""What PyG's own messages keep for their forward, which reads it where attention weights are asked for."""
_STANDS_FOR = "edges that an edge stands for"
"""The name of the weights of messages, which no argument has."""

_Twice = tuple[tuple[str, str], ...]


@cache
def parameters(method: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a method's arguments."""
    return tuple(inspect.signature(method).parameters)[1:]


class OrderedEdges(Protocol):
    """Edges as a block, and values of edges in its order."""

    @property
    def block(self) -> Block:
        """The block."""

    def ordered(self, weight: Tensor) -> Tensor:
        """Return values of edges in the block's order."""


EdgesOf = Callable[[Tensor, tuple[int, int]], OrderedEdges]
"""Gives the edges of an edge_index between so many sources and destinations."""


def _all_edges(edge_index: Tensor, size: tuple[int, int]) -> OrderedEdges:
    return adjacency(plain(edge_index), *size)


@dataclass(frozen=True)
class _Reads:
    """What methods of a convolution read of the arguments of a call."""

    methods: tuple[Callable[..., Any], ...]
    kwargs: dict[str, Any]
    apart: str = ""
    """What keeps these arguments apart from those of the same name of another call."""
    skipped: int = 0
    """Arguments of the last method that are not the call's: the messages that it aggregates."""

    def names(self) -> list[str]:
        """Return the names of all arguments."""
        *first, last = (parameters(each) for each in self.methods)
        return list(dict.fromkeys([*(name for each in first for name in each), *last[self.skipped :]]))

    def given(self, name: str) -> Any:
        """Return the argument of a call that a name stands for, of the end that it says."""
        ends = name[-2:] in ("_i", "_j")
        key = name[:-2] if ends else name
        if key not in self.kwargs:
            found = (inspect.signature(each).parameters.get(name) for each in self.methods)
            default = next(each for each in found if each is not None).default
            if default is inspect.Parameter.empty:
                raise NotCovered(f"its message reads {name!r}, which it was not given")
            return default
        given = self.kwargs[key]
        if ends and isinstance(given, (tuple, list)):
            return given[1 if name.endswith("_i") else 0]
        return given

    def tensors_of_ends(self, more: tuple[str, ...] = ()) -> Iterator[tuple[int, Any]]:
        """Give what is known of sources (0) and destinations (1) by the names that end with one."""
        for name in (*self.names(), *more):
            given = self.kwargs.get(name[:-2]) if name[-2:] in ("_i", "_j") else None
            if isinstance(given, (tuple, list)):
                yield from enumerate(given)
            elif given is not None:
                yield int(name.endswith("_i")), given


class PropagateCall:
    """A call as one of a block; `run` gives what `propagate` does."""

    def __init__(
        self,
        conv: Any,
        edge_index: Any,
        size: Any,
        reads: _Reads,
        updates: dict[str, EdgeUpdate],
        edges: "EdgesOf | None" = None,
    ) -> None:
        if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
            raise NotCovered(f"the graph is given as {type(edge_index).__name__}, not as a (2, E) edge_index")
        self.stands_for = _standing(conv, edge_index)
        self.conv, self.edge_index, self.kwargs, self.updates = conv, edge_index, reads.kwargs, updates
        self.reads = [
            reads,
            *(_Reads((type(conv).edge_update,), each.kwargs, f"{name}: ") for name, each in updates.items()),
        ]
        self.axis = self._row_axis()
        self.size = self._sizes(size)
        self.adjacency = (edges or _all_edges)(edge_index, self.size)
        self.block = self.adjacency.block
        self.how = self._asked()

    def _of_ends(self) -> Iterator[tuple[int, Any]]:
        first, *others = self.reads
        yield from first.tensors_of_ends(parameters(type(self.conv).update)[1:])
        for each in others:
            yield from each.tensors_of_ends()

    def _sizes(self, size: Any) -> tuple[int, int]:
        found: list[int | None] = [None, None] if size is None else list(size)
        for side, each in self._of_ends():
            if isinstance(each, Tensor) and found[side] is None:
                found[side] = self._rows(each)
        first, second = found
        first, second = first if first is not None else second, second if second is not None else first
        if first is None or second is None:
            raise NotCovered("there are no rows of nodes to tell how many there are")
        return first, second

    def _row_axis(self) -> int:
        """Return the axis of rows in tensors of nodes, the same for all of them."""
        given = [each for _, each in self._of_ends()]
        found = {self.conv.node_dim % each.dim() for each in given if isinstance(each, Tensor) and each.dim()}
        if len(found) > 1:
            raise NotCovered("rows are along different axes")
        return found.pop() if found else 0

    def _rows(self, tensor: Tensor) -> int:
        if tensor.dim() <= self.axis:
            raise NotCovered("a tensor of nodes has no axis of rows")
        return tensor.shape[self.axis]

    def _asked(self) -> Propagation:
        """Return the methods as a function of tensors of both ends, edges and the rest."""
        groups: dict[str, list[tuple[str, Tensor]]] = {"src": [], "dst": [], "edge": [], "params": []}
        fixed: dict[str, Any] = {}
        numbers = []
        twice: list[tuple[str, str]] = []  # what two methods read of one tensor is given, and sent, once
        for reads, name in ((each, name) for each in self.reads for name in each.names()):
            key = reads.apart + name
            if name in _NUMBERS:
                numbers.append(key)
            elif name in _SIZES or name == "ptr":
                fixed[key] = RowCount() if name in _SIZES else None
            elif key not in self.updates:
                given = reads.given(name)
                if isinstance(given, Tensor):
                    group = groups[self._group(name, given)]
                    first = next((other for other, tensor in group if tensor is given), None)
                    if first is None:
                        group.append((key, given))
                    else:
                        twice.append((key, first))
                else:
                    fixed[key] = given
        if self.stands_for is not None:
            like = next((t for _, t in groups["src"] + groups["dst"] if t.is_floating_point()), None)
            weight = self.stands_for if like is None else self.stands_for.to(like.dtype)
            groups["edge"].append((_STANDS_FOR, weight))
        tensors = {kind: [tensor for _, tensor in group] for kind, group in groups.items()}
        for ends in (tensors["src"], tensors["dst"]):
            ends[:] = [each.movedim(self.axis, 0) for each in ends]
        tensors["edge"] = [self.adjacency.ordered(each) for each in tensors["edge"]]
        order = tuple(name for group in groups.values() for name, _ in group)
        own = type(self.conv).__module__.startswith("torch_geometric.")
        called = self._message(order, fixed, tuple(numbers), tuple(twice))
        if self.axis and (self.stands_for is not None or self.updates):
            raise NotCovered("rows that are weighed are not along the first axis")
        if self.axis:
            called = _along(called, self.axis, len(tensors["src"]) + len(tensors["dst"]))
        return Propagation(called, **tensors, reduce=OWN, scratch=_SCRATCH if own else frozenset())  # type: ignore[arg-type]

    def _group(self, name: str, given: Tensor) -> str:
        if name[-2:] in ("_i", "_j"):
            side = 1 if name.endswith("_i") else 0
            if self._rows(given) != self.size[side]:
                raise NotCovered(f"{name[:-2]} has {self._rows(given)} rows, not {self.size[side]}")
            return "dst" if side else "src"
        return "edge" if given.dim() and given.shape[0] == self.edge_index.shape[1] else "params"

    def _message(
        self, order: tuple[str, ...], fixed: dict[str, Any], numbers: tuple[str, ...], twice: _Twice
    ) -> Callable[..., Any]:
        """Return the function that makes messages and reduces them, of tensors in order."""
        conv, rest = self.conv, tuple(fixed.items())
        message, aggregate = conv.message, conv.aggregate
        of_message, of_aggregate = (parameters(type(conv).message), parameters(type(conv).aggregate)[1:])
        update = conv.edge_update if self.updates else None
        of_update = parameters(type(conv).edge_update) if self.updates else ()
        updated = tuple(self.updates)

        def called(*rows: Tensor) -> Any:
            *tensors, index = rows
            given = {**dict(zip(order, tensors)), **dict(rest), **dict.fromkeys(numbers, index)}
            given |= {name: given[first] for name, first in twice}
            for each in updated:
                given[each] = update(**{name: given[f"{each}: {name}"] for name in of_update})  # type: ignore[misc]
            made = times_rows(message(**{name: given[name] for name in of_message}), given.get(_STANDS_FOR))
            return aggregate(made, **{name: given[name] for name in of_aggregate})

        called.__qualname__ = f"{type(conv).__name__}.message"
        return called

    @property
    def kind(self) -> Any:
        """What tells calls apart that could go different ways."""
        return (
            self.conv.training,
            tuple(self.updates),
            tuple((t.dtype, t.dim()) for t in (*self.how.per_edge, *self.how.params)),
        )

    def run(self) -> Any:
        """Return what `propagate` returns, or raise `NotCovered`."""
        try:
            out = contribute(self.block, self.how, beside=False).value.movedim(0, self.axis)
        except NotCompiled as reason:  # in evaluation, in which it is compared, say, but not in training
            raise NotCovered(f"its message is not compiled: {reason}") from reason
        for name in self.how.scratch:
            if getattr(self.conv, name, out) is None:  # forward insists that there is something
                setattr(self.conv, name, out.new_empty(0))
        return self.updated(out)

    def updated(self, out: Tensor) -> Any:
        """Return what `propagate` returns, from reduced messages."""
        names = parameters(type(self.conv).update)[1:]
        if any(name not in self.kwargs for name in names):
            raise NotCovered("its update reads what propagate was not given")
        return self.conv.update(out, **{name: self.kwargs[name] for name in names})


def propagated(
    conv: Any,
    edge_index: Any,
    size: Any,
    kwargs: dict[str, Any],
    *,
    joined: bool = True,
    edges: EdgesOf | None = None,
) -> PropagateCall:
    """Return a call of `propagate`; `joined`, with what `edge_updater` is to give the message."""
    kind = type(conv)
    others = {*parameters(kind.aggregate), *parameters(kind.update)}
    updates = {
        name: each.update
        for name, each in kwargs.items()
        if joined
        and isinstance(each, EdgeValues)
        and each.unread
        and each.update.conv is conv
        and each.update.edge_index is edge_index
        and name not in others
    }
    for each in updates.values():
        each.check()
        size = each.size if size is None else size
    reads = _Reads((kind.message, kind.aggregate), kwargs, skipped=1)
    return PropagateCall(conv, edge_index, size, reads, updates, edges)


class UpdateCall(PropagateCall):
    """A call of `edge_updater`, as the sums over the edges of each row: they have its shape."""

    def __init__(self, update: EdgeUpdate, edges: EdgesOf | None = None) -> None:
        if special := sorted(WHOLE & {*parameters(type(update.conv).edge_update)}):
            raise NotCovered(f"its edge_update reads {special[0]!r}")
        reads = _Reads((type(update.conv).edge_update,), update.kwargs)
        super().__init__(update.conv, update.edge_index, update.size, reads, {}, edges)
        if self.axis or self.stands_for is not None:
            raise NotCovered("its rows are weighed, or not along the first axis")

    def form(self) -> Form | None:
        """Return the shape and type of what `edge_updater` gives; None where these are whole numbers."""
        found = compiled_of(self.how)
        if isinstance(found, str):
            raise NotCovered(f"its edge_update is not compiled: {found}")
        made: Any = next(node.args[0] for node in found[0].graph.nodes if node.op == "output")
        rows = value(made[0] if isinstance(made, (tuple, list)) else made)
        shape = (self.edge_index.shape[1], *rows.shape[1:])
        return (shape, found[0].dtype) if rows.is_floating_point() else None

    def _message(
        self, order: tuple[str, ...], fixed: dict[str, Any], numbers: tuple[str, ...], twice: _Twice
    ) -> Callable[..., Any]:
        rest, update, names = tuple(fixed.items()), self.conv.edge_update, self.reads[0].names()
        rows, of_update = RowCount(), tuple(names)

        def called(*given_rows: Tensor) -> Any:
            *tensors, index = given_rows
            given = {**dict(zip(order, tensors)), **dict(rest), **dict.fromkeys(numbers, index)}
            given |= {name: given[first] for name, first in twice}
            made = update(**{name: given[name] for name in of_update})
            return made.new_zeros(rows, *made.shape[1:]).index_add(0, index, made)

        called.__qualname__ = f"{type(self.conv).__name__}.edge_update"
        return called


def _standing(conv: Any, edge_index: Tensor) -> Tensor | None:
    """Return what messages are weighed by, where a hook of ours does so; refuse hooks of others."""
    state = vars(conv).get("_weft")
    stands_for: Tensor | None = None if state is None else state.stands_for
    hooks = [name for name in HOOKS for _ in getattr(conv, name)]
    if conv.explain or hooks != ([] if stands_for is None else ["_message_forward_hooks"]):
        raise NotCovered("it is being explained or has message-passing hooks")
    if stands_for is not None and stands_for.shape[0] != edge_index.shape[1]:
        raise NotCovered("it adds edges to those that are weighed")
    return stands_for


def _along(message: Callable[..., Any], axis: int, ends: int) -> Callable[..., Any]:
    """Return a message for rows along the first axis, of one whose rows of nodes are along another."""

    def called(*rows: Tensor) -> Any:
        made = message(*(each.movedim(0, axis) for each in rows[:ends]), *rows[ends:])
        return made.movedim(axis, 0)

    called.__qualname__ = message.__qualname__
    return called
