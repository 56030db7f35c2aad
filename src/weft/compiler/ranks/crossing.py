"""What of a message crosses the network: the narrowest values that edges elsewhere need of a row.

The owner of a row makes them once, whatever the number of ranks that read it; what is left of the message is
made where the edges are. Between the tensors that a message is given and what edges read of one end lie many
sets of values that could travel: raw rows, transformed ones, one number per head. The one of fewest bytes is
chosen, gradients on their way back included, from shapes alone: all ranks choose alike.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx

from weft.compiler.annotate import check, learned, residency
from weft.compiler.compile import frontier, inputs_of, remembered
from weft.compiler.graphs import close, has_rows, item_shape, name_of, reduced, reductions, value, width
from weft.compiler.passes import rewrite
from weft.compiler.ranks.cut import narrowest
from weft.compiler.spent import SPENT
from weft.compiler.stages import Stage, stage
from weft.compiler.tracing.captures import Captures, Made, NotCompiled, explained
from weft.compiler.tracing.trace import EDGES, Form, Role, trace

_numbers = count()


@dataclass(frozen=True)
class Sent:
    """One of the tensors that travel."""

    name: str
    """The operator that made it, or the input that it is, such as "source_0"."""
    end: Role
    shape: tuple[int, ...]
    """Of a row."""
    dtype: torch.dtype
    backward: bool
    """Whether its gradient comes back."""
    free: bool
    """Whether it is there already, or an input that is fetched once for all steps."""
    given: bool
    """Whether it is one of the tensors that the message was given."""

    @property
    def nbytes(self) -> int:
        """The bytes of a row, one way."""
        return 0 if self.free else math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Travellers:
    """What there is to know of the arguments of a message before they travel."""

    travels: tuple[Role, ...]
    """The ends whose rows cross the network."""
    free: tuple[bool, ...]
    """By argument, whether its rows are there already."""
    needs_grad: tuple[bool, ...]
    """By argument, whether it gets a gradient."""
    learns: bool
    """Whether anything does."""


class Rest(Made):
    """What is left of a message: a function of one row per edge of what was sent, and of what all share."""

    def __init__(self, run: Stage, joined: Sequence[int] = ()) -> None:
        super().__init__(next(_numbers), getattr(run, "__func__", run).__code__)
        self._run, self._joined = run, joined

    def __call__(self, *rows: Tensor) -> Any:
        """Return the messages."""
        count = rows[0].shape[0]
        made = self._run(count, count, count, *rows)
        if self._joined:
            return torch.cat([each.reshape(count, size) for each, size in zip(made, self._joined)], 1)
        return made[0] if len(made) == 1 else tuple(made)


@dataclass(frozen=True)
class Sums:
    """Sums over edges that a message is made of behind them, joined in one row."""

    shapes: tuple[tuple[int, ...], ...]
    """Of each, for a row."""
    after: Stage
    """Takes the sums, then what `beside` gives; gives the summed messages."""
    beside: Stage
    """Of the tensors of a call, what the message captures and, if it counts, the edges of each row."""
    counts: torch.dtype | None
    folds: tuple[int, ...]

    def finished(self, total: Tensor, inputs: Sequence[Tensor], degree: Tensor) -> Tensor:
        """Return the summed messages from joined sums and the number of edges of each row."""
        rows = len(total)
        joined = total.reshape(rows, sum(math.prod(shape) for shape in self.shapes))
        parts = torch.split(joined, [math.prod(shape) for shape in self.shapes], dim=1)
        shaped = [
            part.reshape(rows * fold, *shape[fold > 1 :])
            for part, shape, fold in zip(parts, self.shapes, self.folds)
        ]
        counted = [] if self.counts is None else [degree.to(self.counts)]
        sizes = 0, rows, 0
        (out,) = self.after(*sizes, *shaped, *self.beside(*sizes, *inputs, *counted))
        return out  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Crossing:
    """A message in two: what owners of rows make, and what is made of it on edges."""

    captured: tuple[int, ...]
    executed: frozenset[CodeType]
    sent: tuple[Sent, ...]
    made: Mapping[Role, Stage]
    """By end, what makes its values, of the tensors of a call and what the message captures."""
    edge: tuple[int, ...]
    """Which of those tensors are one row per edge, as the rest takes them."""
    rest: Rest
    """Takes values of sources, destinations, edges, and those that all share."""
    row: int
    """The bytes of what is reduced, for a row."""
    sums: Sums | None = None
    """What comes behind the sums of what the rest gives; None: nothing."""

    @property
    def cost(self) -> int:
        """The bytes that cross for a row of each end, and of reduced rows where these are merged."""
        return 2 * self.row + sum(each.nbytes * (1 + each.backward) for each in self.sent)

    def inputs(self, given: Sequence[Tensor], found: Captures) -> list[Tensor]:
        """Return what the stages take."""
        return [*given, *(found.tensors[place] for place in self.captured)]

    def lines(self) -> list[str]:
        """Return what crosses, in words."""
        found = []
        for each in self.sent:
            shape = "x".join(map(str, each.shape)) or "1"
            ways = "forward and its gradient back" if each.backward else "forward alone"
            size = "there already" if each.free else f"{each.nbytes:,} bytes a row, {ways}"
            found.append(f"{each.name} of {each.end}s, {shape} {str(each.dtype)[6:]}: {size}")
        return found


def crossing(
    message: Callable[..., Any],
    roles: Sequence[Role],
    given: Sequence[Tensor],
    ends: Travellers,
    *,
    sums: bool = False,
) -> tuple[Crossing, Captures] | str:
    """Return what of a message crosses and what it captures now, or why that cannot be told.

    With `sums` messages are added up, and what is linear comes behind the sum.
    """

    def make(forms: Sequence[Form], known: frozenset[CodeType]) -> Crossing:
        with SPENT.on():
            return cross(message, forms, ends, sums=sums, known=known)

    return remembered(message, roles, given, (ends, sums), make)


def cross(
    message: Callable[..., Any],
    forms: Sequence[Form],
    ends: Travellers,
    *,
    sums: bool = False,
    known: frozenset[CodeType] = frozenset(),
) -> Crossing:
    """Return what of a message crosses, or raise `NotCompiled`."""
    traced = trace(message, forms, known)
    with explained("rewriting"):
        if sums:
            close(traced.graph, "sum")
        check(traced.graph)
        rewrite(traced.graph)
    graph = MessageGraph(traced.graph, ends)
    cuts: dict[Role, list[fx.Node]] = {"source": graph.cut("source"), "destination": graph.cut("destination")}
    rest = graph.rest([each for nodes in cuts.values() for each in nodes])
    cuts["shared"] = rest.shared
    made = {role: stage(graph.inputs, nodes) for role, nodes in cuts.items()}
    sent = [graph.sent(node, role) for role in ends.travels for node in cuts[role]]
    places = tuple(graph.inputs.index(each) for each in rest.edge)
    order = [*cuts["source"], *cuts["destination"], *rest.edge, *rest.shared]
    if len(order) == len(rest.shared):
        raise NotCompiled("its messages depend on no row")
    left = Rest(stage(order, graph.outputs), [width(each) for each in graph.outputs] if sums else ())
    row = sum(width(each) * value(each).element_size() for each in graph.outputs)
    behind = graph.sums() if sums else None
    return Crossing(traced.captured, traced.executed, tuple(sent), made, places, left, row, behind)


@dataclass(frozen=True)
class Left:
    """What is read beside what was sent, of edges and by all of them."""

    edge: list[fx.Node]
    shared: list[fx.Node]


class MessageGraph:
    """The graph of a message, closed by sums over edges or not."""

    def __init__(self, graph: fx.Graph, travellers: Travellers) -> None:
        self.graph, self.travellers = graph, travellers
        self.every = inputs_of(graph)
        self.inputs = [node for node in self.every if node.name != "count"]
        self.reductions = reductions(graph)
        made: Any = next(node for node in graph.nodes if node.op == "output").args[0]
        self.results: list[fx.Node] = list(made) if isinstance(made, tuple) else [made]
        self.outputs: list[Any] = [each.args[1] for each in self.reductions] or self.results
        self.free = {node for node, free in zip(self.inputs, travellers.free) if free}
        needs = {node: travellers.learns and node.meta.get("needs_grad", False) for node in self.inputs}
        self.learned = learned(graph, needs | dict(zip(self.inputs, travellers.needs_grad)))

    def cut(self, role: Role) -> list[fx.Node]:
        """Return the values of one end that edges are given: the narrowest, where they travel."""
        own = [node for node in self.graph.nodes if node.op != "output" and residency(node) == role]
        inside = set(own)
        after = {node: [each for each in node.users if each in inside] for node in own}
        ends = {node for node in own if any(self._on_edges(each, inside) for each in node.users)}
        starts = [node for node in own if node.op == "placeholder"]
        if not ends:
            return []
        return narrowest({node: self._cost(node, role) for node in own}, after, starts, ends)

    def _on_edges(self, user: fx.Node, inside: set[fx.Node]) -> bool:
        """Return whether something that reads a value of one end is of edges, or what they are reduced to."""
        behind = user.op != "output" and residency(user) == "reduced" and user.target is not reduced
        return user not in inside and not behind

    def sums(self) -> Sums:
        """Return what comes behind the sums."""
        needed = frontier(self.results, self.reductions)
        counts = next((value(node).dtype for node in self.every if node not in self.inputs), None)
        folds = [int(value(each).shape[0]) // EDGES for each in self.reductions]
        shapes = tuple(item_shape(each) for each in self.reductions)
        after = stage([*self.reductions, *needed], self.results)
        return Sums(shapes, after, stage(self.every, needed), counts, tuple(folds))

    def _cost(self, node: fx.Node, role: Role) -> float:
        if not self._is_row(node):
            return math.inf
        if role not in self.travellers.travels or node in self.free:
            return 0.0
        size = math.prod(item_shape(node)) * value(node).element_size()
        return float(size * (2 if self._backward(node) else 1))

    def _is_row(self, node: fx.Node) -> bool:
        """Return whether a value is one row per node, of numbers that travel."""
        if node.op == "placeholder":
            return True
        made = node.meta["val"]
        one = isinstance(made, Tensor) and has_rows(node) and made.shape[0] == EDGES
        return one and made.is_floating_point()

    def _backward(self, node: fx.Node) -> bool:
        return node in self.learned and value(node).is_floating_point()

    def sent(self, node: fx.Node, role: Role) -> Sent:
        """Return how a value travels."""
        given = node.op == "placeholder"
        name, form = node.name if given else name_of(node), (item_shape(node), value(node).dtype)
        return Sent(name, role, *form, self._backward(node), node in self.free, given)

    def rest(self, sent: Iterable[fx.Node], outputs: Sequence[fx.Node] | None = None) -> Left:
        """Return what the rest of the message, or of some of its values, reads beside what was sent."""
        known, stack = set(sent), list(reversed(self.outputs if outputs is None else outputs))
        edge: dict[fx.Node, None] = {}
        shared: dict[fx.Node, None] = {}
        while stack:
            node = stack.pop()
            if node in known:
                continue
            known.add(node)
            if residency(node) == "shared":
                shared[node] = None
            elif node.op == "placeholder":
                edge[node] = None
            else:
                stack += reversed(node.all_input_nodes)
        return Left(list(edge), list(shared))


__all__ = ["Crossing", "MessageGraph", "Rest", "Sent", "Sums", "Travellers", "cross", "crossing"]
