"""A message function as a graph of torch's operators, recorded on tensors that have shapes and no values.

The message is run on a number of edges that occurs as no other size: a prime, so that a size in the
graph that is a multiple of it counts edges. Tensors that it captures become inputs. Where it reads
sizes, a second run on few edges tells whether it computes with their number in Python.
"""

import contextlib
import cProfile
import gc
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from weft.compiler.tracing.apart import fresh_casts, unsaved
from weft.compiler.tracing.captures import (
    Captures,
    NotCompiled,
    after_recording,
    captures,
    explained,
    is_trusted,
    reason,
)
from weft.compiler.tracing.contractions import Contractions
from weft.compiler.tracing.edge_counts import few_edges, same_but_for_edges
from weft.compiler.tracing.held import held_by
from weft.compiler.tracing.norms import FixedNorms
from weft.compiler.tracing.reads import Reads, Refusals, refused
from weft.kernels.relation import relation_matmul_op

Role = Literal["source", "destination", "edge", "shared", "index"]
"""`index` is the number of the row that an edge goes to, for messages that reduce their edges themselves."""

EDGES = 1_000_003
"""The number of edges in a trace. Inputs with a size that is a multiple of it are not traced."""
ROWS = 1_000_033
"""The number of destinations in a trace."""
_Ran = tuple[set[types.CodeType], set[types.CodeType]]
"""The code that ran, and what of it is of no library."""
_COUNTS = "it computes with the number of edges in Python"
MODE = FakeTensorMode(allow_non_fake_inputs=True)
"""Where shapes of all values of graphs are computed."""
TURN = threading.RLock()
"""Held by the thread that makes a graph: `MODE` has one list for all threads of what leaving it ends."""


def _no_number(self: int, *others: Any) -> Any:
    refused("it computes with the number of destinations")


class RowCount(int):
    """The number of destinations as a message is given it: a size of tensors, and nothing to compute with."""

    def __new__(cls) -> "RowCount":
        """Return the one that there is."""
        return int.__new__(cls, ROWS)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _each in (f"__{_name}__", f"__r{_name}__"):
        setattr(RowCount, _each, _no_number)
for _each in ("__float__", "__neg__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"):
    setattr(RowCount, _each, _no_number)


@dataclass(frozen=True)
class Form:
    """An input of a message: what it is a row of, and its shape without that of rows."""

    role: Role
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(role: Role, tensor: Tensor) -> "Form":
        """Return the form of a tensor that is given to a message."""
        shape = tensor.shape if role == "shared" else tensor.shape[1:]
        return Form(role, shape, tensor.dtype, tensor.device)

    def example(self, edges: int = EDGES) -> Tensor:
        """Return a tensor of this form without values."""
        rows = () if self.role == "shared" else (edges,)
        return torch.empty((*rows, *self.shape), dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class Traced:
    """A message as a graph; its inputs are those of the forms, then the captured tensors in use."""

    graph: fx.Graph
    """Every node has the shape of its value in `meta["val"]` and every input its role in `meta["role"]`."""
    captured: tuple[int, ...]
    """Which of `Captures.tensors` the message uses, where captures are those of `executed`."""
    executed: frozenset[types.CodeType]
    """The code that ran."""
    dtype: torch.dtype
    """That of what the message returns, of the last of two."""


def trace(
    message: Callable[..., Any],
    forms: Sequence[Form],
    known: frozenset[types.CodeType] = frozenset(),
    scratch: Collection[str] = (),
) -> Traced:
    """Return the graph of a message, or raise `NotCompiled` with the reason why there is none.

    `known` is code that was executed before, when the captures were others; `scratch` names attributes that
    a message may set, since nobody reads them after it.
    """
    executed, foreign = set(known), set[types.CodeType]()
    before = held_by(message)
    before.require_lasting()

    def run(edges: int) -> _Recorder:
        try:
            return _recorded(message, forms, (executed, foreign), edges)
        finally:
            changed.update(before.restored())

    changed: set[str] = set()
    recorder = run(EDGES)
    if not before.whole and not changed:
        before = held_by(message, executed=executed)
        recorder = run(EDGES)
    if changed - set(scratch):
        raise NotCompiled("it changes what it captures")
    if recorder.reads.sizes:
        _check_counts(recorder, run)
    with after_recording():
        if recorder.refusal:
            raise NotCompiled(recorder.refusal)
        found = captures(message, executed)
        if lost := sorted(code.co_name for code in foreign - found.codes):
            raise NotCompiled(
                f"it calls {lost[0]!r}, which its arguments, closure and modules do not lead to"
            )
        return recorder.traced(found, frozenset(executed))


def _recorded(message: Callable[..., Any], forms: Sequence[Form], ran: _Ran, edges: int) -> "_Recorder":
    """Return a recorder that has seen a message run on a number of edges."""
    recorder = _Recorder(edges)
    for form in forms:
        recorder.check(form.shape)
    with unsaved(), explained("tracing"), MODE, torch.enable_grad(), fresh_casts(), Refusals():
        examples = [recorder.input(form) for form in forms]
        with _noted(ran, message), recorder, Contractions(edges), FixedNorms(), recorder.reads:
            made = message(*examples)
        recorder.output(made, ROWS if any(form.role == "index" for form in forms) else edges)
    recorder.graph.eliminate_dead_code()
    return recorder


def _check_counts(many: "_Recorder", run: Callable[[int], "_Recorder"]) -> None:
    """Raise `NotCompiled` where a run on fewer edges does something else."""
    few = few_edges(many.graph, EDGES)
    try:
        other = run(few)
    except NotCompiled as error:
        raise NotCompiled(_COUNTS, reads_others=True) from error
    alike = same_but_for_edges(many.graph, other.graph, EDGES, few)
    if not alike or many.used() != other.used():
        raise NotCompiled(_COUNTS, reads_others=True)


@contextlib.contextmanager
def _noted(ran: _Ran, message: Callable[..., Any]) -> Iterator[None]:
    """Note the code of every Python function that is called, and apart that of no library."""
    executed, foreign = ran
    before = sys.getprofile()
    counting = isinstance(before, cProfile.Profile)  # `getprofile` gives it, `setprofile` does not take it
    if not counting and not callable(before) and before is not None:
        executed |= captures(message).codes  # a profiler that could not be put back: all code may be called
        yield
        return

    def note(frame: types.FrameType, event: str, value: Any) -> None:
        if event == "call":
            executed.add(frame.f_code)
            if frame.f_code not in foreign and _is_own(frame):
                foreign.add(frame.f_code)

    collecting = gc.isenabled()
    gc.disable()  # what is called when garbage is collected is not the message's
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None if counting else before)
        if collecting:
            gc.enable()
        if counting:
            before.enable()  # type: ignore[union-attr]


def _is_own(frame: types.FrameType) -> bool:
    """Whether a function is no library's, or one whose answers change that no library called."""
    name, caller = _module(frame), frame.f_back
    if is_trusted(name):
        return False
    if name.split(".")[0] in sys.stdlib_module_names and caller is not None and is_trusted(_module(caller)):
        return False
    while caller is not None and caller.f_code is not _recorded.__code__:
        if "importlib" in _module(caller):  # torch imports parts of itself late
            return False
        caller = caller.f_back
    return True


def _module(frame: types.FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes every operator that runs under it into a graph."""

    def __init__(self, edges: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.edges, self.reads = edges, Reads(edges)
        self.graph = fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.kept: list[Tensor] = []  # so that no id is used twice
        self.fixed: set[int] = (
            set()
        )  # tensors that nothing may be written to: inputs, views and what they show
        self.captured: list[tuple[Tensor, fx.Node]] = []
        self.refusal = ""
        """Why what is recorded is not to be compiled."""

    def input(self, form: Form) -> Tensor:
        example = form.example(self.edges)
        if example.is_floating_point():
            example.requires_grad_()
        node = self.graph.placeholder(f"{form.role}_{len(self.kept)}")
        node.meta["role"] = form.role
        self._bind(example, node)
        self.fixed.add(id(example))
        return example

    def output(self, made: Any, rows: int) -> None:
        made = tuple(made) if isinstance(made, (tuple, list)) else made
        if isinstance(made, tuple) and len(made) == 1 and rows == EDGES:
            raise NotCompiled("it returns a tuple of one")
        for each in made if isinstance(made, tuple) else (made,):
            if not isinstance(each, Tensor) or each.dim() == 0 or each.shape[0] != rows:
                kind = "edge" if rows == self.edges else "destination"
                raise NotCompiled(f"it does not return a row per {kind}")
        self.graph.output(tree_map(self._node, made))
        self.dtype = _tensors(made)[-1].dtype
        leads = _leads_to([self._node(each) for each in _tensors(made)])
        if any(self.nodes.get(id(leaf)) not in leads for leaf in leaves_of(_tensors(made))):
            self.refusal = self.refusal or "a part has a backward of its own"

    def check(self, shape: torch.Size) -> None:
        if any(size and (size % EDGES == 0 or size % ROWS == 0) for size in shape):
            raise NotCompiled("a tensor has a size that stands for the number of edges or rows")

    def used(self) -> list[int]:
        """Return which captured tensors the graph uses, by their ids."""
        return [id(tensor) for tensor, node in self.captured if node.users]

    def traced(self, found: Captures, executed: frozenset[types.CodeType]) -> Traced:
        places = {id(tensor): place for place, tensor in enumerate(found.tensors)}
        used = []
        for tensor, node in self.captured:
            if not node.users:
                self.graph.erase_node(node)
            elif id(tensor) in places:
                used.append(places[id(tensor)])
            else:
                raise NotCompiled("it uses a tensor that its arguments, closure and modules do not lead to")
        for node in self.graph.nodes:
            # What is kept of a trace may not hold the parameters that were captured, nor what autograd has of
            # them: a CUDA graph that is captured later would wait for the stream of this.
            if "val" in node.meta:
                node.meta["val"] = tree_map_only(Tensor, Tensor.detach, node.meta["val"])
        return Traced(self.graph, tuple(used), executed, self.dtype)

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        noting = sys.getprofile()
        noted = isinstance(noting, types.FunctionType)  # it is the one of `_noted`
        if noted:
            sys.setprofile(None)  # what torch calls for a shape is not the message's, and there is much of it
        try:
            return self._recorded(func, args, kwargs or {})
        except Exception as error:
            Refusals.note(reason(error, "tracing"))
            raise
        finally:
            if noted:
                sys.setprofile(noting)

    def _recorded(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.namespace == "prim":  # asks for a device or a layout
            return func(*args, **kwargs)
        if not torch.is_grad_enabled() and func is not relation_matmul_op:  # which is run with its gradient
            self.refusal = self.refusal or "a part has a backward of its own, or none"
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.refusal = self.refusal or f"it draws random numbers ({func})"
            if func._schema.is_mutable:
                return func(*tree_map(self._fake, args), **kwargs)
        written = func._schema.is_mutable and args and isinstance(args[0], Tensor)
        if written and (id(args[0]) in self.fixed or id(args[0]) not in self.nodes):
            raise NotCompiled(f"it writes in place into what others may read ({func})")
        nodes = tree_map(self._node, (args, kwargs))
        fakes = tree_map(self._fake, (args, kwargs))
        made = func(*fakes[0], **fakes[1])
        if func._schema.is_mutable:
            self._written(func, args, nodes, made)
            return args[0]
        if not _tensors(made):
            return made
        if func is torch.ops.aten.detach.default and _is_new(nodes[0][0]):
            # Factories give their result through a detach, behind which nobody has it.
            self._bind(made, nodes[0][0])
            return made
        node = self.graph.call_function(func, *nodes)
        node.meta["val"] = made
        self._bind_all(func, args, made, node)
        return made

    def _written(self, func: Any, args: Any, nodes: Any, made: Any) -> None:
        """Record `x.relu_()` as x.relu(), where nobody else sees x."""
        name = func._schema.name.split("::")[1]
        plain = getattr(torch.ops.aten, name.removesuffix("_"), None)
        overload = (
            None if plain is None or not name.endswith("_") else getattr(plain, func._overloadname, None)
        )
        if overload is None or id(args[0]) in self.fixed:
            raise NotCompiled(f"it writes in place into what others may read ({func})")
        node = self.graph.call_function(overload, *nodes)
        node.meta["val"] = made
        self.nodes[id(args[0])] = node

    def _bind_all(self, func: Any, args: Any, made: Any, node: fx.Node) -> None:
        if isinstance(made, Tensor):
            self._bind(made, node)
        else:
            for place, each in enumerate(made):
                if isinstance(each, Tensor):
                    item = self.graph.call_function(_item, (node, place))
                    self._bind(each, item)
        if any(each.alias_info is not None for each in func._schema.returns):
            for each in [*_tensors(args), *_tensors(made)]:
                self.fixed.add(id(each))

    def _bind(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta["val"] = tensor
        self.nodes[id(tensor)] = node
        self.kept.append(tensor)

    def _node(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        found = self.nodes.get(id(value))
        return self._capture(value) if found is None else found

    def _fake(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
            return value
        return self.nodes[id(value)].meta["val"]

    def _capture(self, tensor: Tensor) -> fx.Node:
        self.check(tensor.shape)
        self.fixed.add(id(tensor))
        if tensor.requires_grad and not tensor.is_leaf:
            raise NotCompiled("it uses a computed tensor with a gradient that it was not given")
        last = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            node = self.graph.placeholder(f"captured_{len(self.captured)}")
        node.meta["role"], node.meta["needs_grad"] = "shared", tensor.requires_grad
        with MODE:
            node.meta["val"] = Form.of("shared", tensor).example()
        self.nodes[id(tensor)] = node
        self.captured.append((tensor, node))
        self.kept.append(tensor)
        return node


def _leads_to(nodes: list[fx.Node]) -> set[fx.Node]:
    """Return what nodes are made of, and have gradients for where it can have one."""
    found, stack = set[fx.Node](), [*nodes]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [] if node.target is torch.ops.aten.detach.default else node.all_input_nodes
    return found


def leaves_of(made: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors without a history that get a gradient from others."""
    found: list[Tensor] = [each for each in made if each.requires_grad and each.grad_fn is None]
    stack: list[Any] = [each.grad_fn for each in made]
    seen: set[Any] = {None}
    while stack:
        step = stack.pop()
        if step not in seen:
            seen.add(step)
            found += [step.variable] if hasattr(step, "variable") else []
            stack += [other for other, _ in step.next_functions]
    return found


def _is_new(node: Any) -> bool:
    """Return whether a node makes a tensor of no other."""
    return isinstance(node, fx.Node) and node.op == "call_function" and not node.all_input_nodes


def _item(values: Any, place: int) -> Any:
    return values[place]


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    return [t for each in values for t in _tensors(each)] if isinstance(values, (tuple, list)) else []
