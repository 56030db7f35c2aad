"""From a message to what runs: trace, annotate, rewrite, lower; kept for the next call that is the same."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import CodeType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from weft.compiler.annotate import check, movement, residency
from weft.compiler.graphs import close, reductions, value
from weft.compiler.levels import inner_graphs
from weft.compiler.lower import Loaded, lower
from weft.compiler.passes import rewrite
from weft.compiler.programs.program import Program
from weft.compiler.relation_pairs import ByRelation, by_relation
from weft.compiler.spent import SPENT
from weft.compiler.stages import Stage, check_stage, stage, stage_when_called
from weft.compiler.tracing.axes import rows_first
from weft.compiler.tracing.captures import (
    Captures,
    Made,
    NotCompiled,
    Reason,
    after_recording,
    captures,
    explained,
)
from weft.compiler.tracing.scatters import take_rows
from weft.compiler.tracing.trace import EDGES, TURN, Form, Role, Traced, trace
from weft.compiler.unread import Twins, Unread, twins_of, unread_inputs

_ENDS = ("source", "destination")
_MOST = 2048
_MOST_OF_CODE = 256
"""Ways in which one piece of code is compiled, enough for nets whose layers hold a number of their own; a
message that changes at every call is left alone."""


@dataclass(frozen=True)
class Reduction:
    """One reduction over the edges of each row: as a program, and as a message of fewer operators."""

    kind: str
    program: Program | None
    reason: str
    """Why there is no program."""
    loads: tuple[int, ...]
    """Where the program's tensors are among those made before."""
    message: Stage
    """Of the rows of `inputs`, a message as it was given, without what runs on nodes."""
    inputs: dict[Role, tuple[int, ...]]
    """By what they are rows of, where the message's tensors are among those made before."""
    shape: tuple[int, ...]
    """The shape of a row of the result."""
    fold: int


@dataclass(frozen=True)
class Compiled:
    """A message in three stages."""

    graph: fx.Graph
    captured: tuple[int, ...]
    executed: frozenset[CodeType]
    """The code whose captures the places of `captured` are among."""
    before: Stage
    reductions: tuple[Reduction, ...]
    after: Stage | None
    """Of the reductions' results, then of some of what was made before; None: the results themselves."""
    after_inputs: tuple[int, ...]
    counts: torch.dtype | None
    """The type in which `before` takes the number of edges of each row, after all else; None: it does not."""
    dtype: torch.dtype
    """That of the messages."""
    values: tuple[fx.Node | Loaded, ...]
    """What `before` gives."""
    unread: Unread = ()
    """The inputs of nodes that something is made of before the reductions."""
    inner: tuple["Compiled", ...] = ()
    """What is reduced first, in this order; `before` takes the rows of all of it after its other inputs."""
    by_relation: ByRelation | None = None
    """What comes before all else where sources are (relation, source) pairs; None: they are nodes."""

    @property
    def made(self) -> tuple[fx.Node, ...]:
        """What `before` gives, as nodes of the graph."""
        return tuple(each.node if isinstance(each, Loaded) else each for each in self.values)

    @cached_property
    def on_nodes(self) -> bool:
        """Whether operators of the message run on nodes instead of edges, or of pairs, which are fewer."""
        graphs = (self.graph, *(each.graph for each in self.inner))
        if self.by_relation is None:
            return any(_runs_on(graph, _ENDS) for graph in graphs)
        return _runs_on(self.by_relation.graph, _ENDS) or any(_runs_on(each, _ENDS[1:]) for each in graphs)

    def inputs(self, given: Sequence[Tensor], found: Captures) -> list[Tensor]:
        """Return what `before` takes, from the tensors of a call and what its message captures."""
        return [*given, *(found.tensors[place] for place in self.captured)]


def _runs_on(graph: fx.Graph, ends: Collection[str]) -> bool:
    nodes = (node for node in graph.nodes if node.op == "call_function")
    return any(residency(node) in ends and movement(node) not in ("shape", "spread") for node in nodes)


class _Traced(Protocol):
    """What is made of a trace."""

    @property
    def executed(self) -> frozenset[CodeType]:
        """The code that ran."""


Found = TypeVar("Found", bound=_Traced)

_known: OrderedDict[Hashable, Any] = OrderedDict()
_ways: defaultdict[Hashable, int] = defaultdict(int)
_unrecorded: set[Hashable] = set()
"""Code that was refused before all of it was recorded, in one of its ways."""
_executed: defaultdict[Hashable, frozenset[CodeType]] = defaultdict(frozenset)


def compiled(
    message: Callable[..., Any],
    roles: Sequence[Role],
    given: Sequence[Tensor],
    reduce: str,
    scratch: frozenset[str] = frozenset(),
    *,
    without: tuple[str, ...] = (),
) -> tuple[Compiled, Captures] | Reason:
    """Return a message compiled for tensors of these forms and what it captures now, or why it is not.

    `scratch` names attributes that the message may set; `without` leaves passes out.
    """

    twins = twins_of(roles, given)

    def make(forms: Sequence[Form], known: frozenset[CodeType]) -> Compiled:
        with SPENT.on(messages=1):
            options: dict[str, Any] = {"known": known, "scratch": scratch, "twins": twins}
            return compile_message(message, forms, reduce, without=without, **options)

    return remembered(message, roles, given, (reduce, scratch, without, twins), make)


def remembered(
    message: Callable[..., Any],
    roles: Sequence[Role],
    given: Sequence[Tensor],
    what: Hashable,
    make: Callable[[Sequence[Form], frozenset[CodeType]], Found],
) -> tuple[Found, Captures] | Reason:
    """Return `what` is made of a message for tensors of these forms and what it captures now, or why nothing.

    `make` takes the forms and code that was executed before; it is called where nothing is known yet.
    """
    with TURN:
        return _remembered(message, roles, given, what, make)


def _remembered(
    message: Callable[..., Any], roles: Sequence[Role], given: Sequence[Tensor], what: Hashable, make: Any
) -> tuple[Any, Captures] | Reason:
    code = _code(message)
    try:
        found = captures(message, _executed[code])
        forms = [(role, t.shape[role != "shared" :], t.dtype, t.device) for role, t in zip(roles, given)]
        rest = (*forms, what, _autocast(given))
        made = _known.get((found.key, rest))
        if made is not None:
            _known.move_to_end((found.key, rest))
        else:
            made = _made(code, [Form(*form) for form in forms], what, make)
            found = captures(message, _executed[code])
            _known[found.key, rest] = made
            while len(_known) > _MOST:
                _known.popitem(last=False)
    except NotCompiled as reason:
        return Reason.of(reason)
    except TypeError:
        return Reason("it reaches something that has no hash")
    return made if isinstance(made, Reason) else (made, found)


def _code(message: Any) -> Hashable:
    """Return what tells messages apart by how they are written: their code and that of what they hold."""
    function = getattr(message, "__func__", message)
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_set(cell)]
    codes = (_code_of(getattr(each, "__func__", each)) for each in (function, *held))
    return tuple(code for code in codes if code is not None)


def _code_of(function: Any) -> Hashable:
    return function.number if isinstance(function, Made) else getattr(function, "__code__", None)


def _is_set(cell: Any) -> bool:
    try:
        return callable(cell.cell_contents)
    except ValueError:
        return False


def _autocast(given: Sequence[Tensor]) -> Hashable:
    kind = given[0].device.type if given else "cpu"
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)


def _made(code: Hashable, forms: Sequence[Form], what: Hashable, make: Any) -> Any:
    if code and _ways[code, what] >= _MOST_OF_CODE:  # not kept, which would push out what is compiled
        error = NotCompiled(
            f"its code was compiled in {_MOST_OF_CODE} ways before, each for other shapes or other values of "
            "what it reads beside its arguments"
        )
        error.recorded = (code, what) not in _unrecorded
        raise error
    _ways[code, what] += 1
    try:
        # Under inference torch runs other operators, and training comes later; what counts operators is not
        # to see those on the million edges of a trace, which do not run.
        with torch.inference_mode(False), _disable_current_modes():
            made = make(forms, _executed[code])
        _executed[code] = made.executed
        return made
    except NotCompiled as reason:
        if not reason.recorded:
            _unrecorded.add((code, what))
        return Reason.of(reason)


def compile_message(
    message: Callable[..., Any],
    forms: Sequence[Form],
    reduce: str,
    *,
    without: Collection[str] = (),
    known: frozenset[CodeType] = frozenset(),
    scratch: frozenset[str] = frozenset(),
    twins: Twins = (),
) -> Compiled:
    """Return a message compiled, or raise `NotCompiled` with the reason; `without` leaves passes out.

    A message that reduces its edges itself (`reduce` is "own") takes the number of each edge's row.
    """
    traced = trace(message, forms, known, scratch)
    graph = traced.graph
    with after_recording(), explained("rewriting"):
        rows_first(graph)
        take_rows(graph)
        close(graph, reduce)
        if not reductions(graph):
            raise NotCompiled("a softmax message returns score [E] or [E, H] and value, any other one tensor")
        check(graph)
        rewrite(graph, without=without)
    with after_recording(), explained("staging"):
        first = by_relation(graph)
        if first is not None:
            first = replace(first, unread=unread_inputs(first.graph, inputs_of(first.graph))[0])
            twins = ()  # of one tensor the pairs have other rows
        inner = tuple(_staged(each, traced, twins) for each in inner_graphs(graph))
        return replace(_staged(graph, traced, twins), inner=inner, by_relation=first)


def _staged(graph: fx.Graph, traced: Traced, twins: Twins) -> Compiled:
    inputs = inputs_of(graph)
    unread, twins = unread_inputs(graph, inputs, twins)
    same = {inputs[i]: inputs[j] for i, j in twins}
    counts = next((value(node).dtype for node in inputs if node.name == "count"), None)
    made_last = next(node for node in graph.nodes if node.op == "output").args[0]
    outputs: list[Any] = [made_last] if isinstance(made_last, fx.Node) else list(made_last)
    nodes = reductions(graph)
    made = _Before()
    parts = tuple(_reduction(node, made) for node in nodes)
    needed = [] if outputs == nodes else frontier(outputs, nodes)
    after = None if outputs == nodes else stage([*nodes, *needed], outputs)
    places = tuple(made.place(node) for node in needed)
    before = stage(inputs, made.values, same)
    check_stage(before, inputs, made.values)
    if after is not None:
        check_stage(after, [*nodes, *needed], outputs)
    known = graph, traced.captured, traced.executed
    last = traced.dtype, tuple(made.values), unread
    return Compiled(*known, before, parts, after, places, counts, *last)


def inputs_of(graph: fx.Graph) -> list[fx.Node]:
    """Return the inputs of a graph; the number of edges of each row comes last."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    return sorted(inputs, key=lambda node: node.name == "count")


class _Before:
    """What is made before the reductions, each once."""

    def __init__(self) -> None:
        self.values: list[fx.Node | Loaded] = []

    def place(self, value: fx.Node | Loaded) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def _reduction(node: fx.Node, made: _Before) -> Reduction:
    kind, *values = node.args
    program, reason = None, ""
    loads: tuple[int, ...] = ()
    try:
        with explained("lowering"):
            lowered = lower(node)
        program, loads = lowered.program, tuple(made.place(each) for each in lowered.loads)
    except NotCompiled as error:
        reason = str(error)
    frontier = list(dict.fromkeys(each for value in values for each in _inputs_of(value)))  # type: ignore[arg-type]
    ordered = {role: [each for each in frontier if residency(each) == role] for role in _ROLES}
    message = stage_when_called([each for role in _ROLES for each in ordered[role]], values)  # type: ignore[arg-type]
    places = {role: tuple(made.place(each) for each in ordered[role]) for role in _ROLES}
    rows, *shape = node.meta["val"].shape
    return Reduction(str(kind), program, reason, loads, message, places, tuple(shape), rows // EDGES)


_ROLES: tuple[Role, ...] = ("source", "destination", "edge", "shared")


def _inputs_of(node: fx.Node) -> list[fx.Node]:
    """Return what stays outside of a message on edges: values of one end, shared ones, inputs of edges."""
    if node.op == "placeholder" or residency(node) not in ("edge", "pair"):
        return [node]
    return [found for each in node.all_input_nodes for found in _inputs_of(each)]


def frontier(outputs: Sequence[fx.Node], ends: Sequence[fx.Node]) -> list[fx.Node]:
    """Return what the operators behind the reductions read beside them."""
    found: dict[fx.Node, None] = {}
    stack, seen = [*outputs], set()
    while stack:
        each = stack.pop()
        if each in seen or each in ends:
            continue
        seen.add(each)
        if residency(each) == "reduced":
            stack += each.all_input_nodes
        else:
            found[each] = None
    return list(found)
