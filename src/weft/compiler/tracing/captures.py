"""What a message function reads beside its arguments, found without running it.

A trace may be used again only where everything that shaped it is as it was. `captures` walks from the
function over what its code can reach: closure, defaults, globals that it names, the object it is bound to,
modules and their settings. Numbers, strings and classes become the key by value, tensors by their form:
they are inputs of the trace, in the order found, so that a call always sees the live ones.
"""

import dis
import functools
import sys
import types
import weakref
from collections.abc import Callable, Container, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft.compiler.tracing.apart import quiet

_MOST = 4000
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, type(Ellipsis), range)
_LIBRARY = ("torch", "torch_geometric", "builtins", "math", "operator", "functools", "typing", "collections")
_TORCH_FUNCTIONS = (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType)
_FORBIDDEN = frozenset(
    (
        *("print", "input", "open", "register_hook", "requires_grad", "requires_grad_", "is_grad_enabled"),
        *("backward", "no_grad"),
        *("globals", "eval", "exec", "__import__", "import_module"),
        *("enable_grad", "set_grad_enabled", "is_compiling"),
    )
)
"""Names that stand for what a trace would not repeat."""
_FIXED = ("torch_geometric.inspector",)
"""Modules whose objects are made once and never change."""
_FICKLE = ("random", "time", "datetime", "os", "sys", "numpy", "secrets")
"""Modules whose functions may give another answer at every call."""
_BY_TEXT = frozenset(["getattr", "attrgetter", "vars", "__dict__"])
"""Names of what reads attributes by a text, which may lie in a variable."""
_IMPLIED = frozenset(["forward", "__call__"])


class NotCompiled(Exception):
    """A message cannot be compiled; says why, in words that follow "not compiled: "."""

    recorded = False
    """Whether all of it was recorded before: it then reads no values, no number of edges and no state."""

    def __init__(self, reason: str, *, reads_others: bool = False) -> None:
        """Take the reason, and whether it says that messages depend on other edges than their own."""
        super().__init__(reason)
        self.reads_others = reads_others


class Reason(str):
    """Why a message is not compiled."""

    recorded = reads_others = False
    """As in `NotCompiled`."""

    @staticmethod
    def of(error: NotCompiled) -> "Reason":
        """Return what an error says."""
        made = Reason(error)
        made.recorded, made.reads_others = error.recorded, error.reads_others
        return made


@contextmanager
def after_recording() -> Iterator[None]:
    """Note that what is refused meanwhile was recorded."""
    try:
        yield
    except NotCompiled as error:
        error.recorded = True
        raise


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn whatever goes wrong in a part of the compiler into the reason why a message is not compiled.

    torch logs nothing of it, with a traceback: what the message does wrong is raised where it runs.
    """
    try:
        with quiet():
            yield
    except NotCompiled:
        raise
    except Exception as error:
        raise reason(error, doing) from error


def reason(error: Exception, doing: str) -> NotCompiled:
    """Return why a message is not compiled, of what was raised while doing something to it."""
    if isinstance(error, NotCompiled):
        return error
    lines = [each[:200] for each in str(error).strip().splitlines()[:1]]
    return NotCompiled(": ".join([f"{doing} failed", type(error).__name__, *lines]))


class Made:
    """A function that the compiler made: it reads its arguments alone, and no other has its number."""

    def __init__(self, number: int, code: types.CodeType) -> None:
        """Take the code that it runs, which nobody wrote."""
        self.number, self.code = number, code


@dataclass(frozen=True)
class Captures:
    """What a function reads beside its arguments."""

    key: Hashable
    """Equal for two functions that do the same to the same inputs."""
    tensors: list[Tensor]
    """All tensors within reach, in an order that the key fixes."""
    objects: list[Any]
    """Everything within reach that is not a plain value."""
    codes: frozenset[types.CodeType] = frozenset()
    """The code of functions within reach whose reads are in the key."""


def captures(function: Callable[..., Any], executed: Container[types.CodeType] | None = None) -> Captures:
    """Return what a function can reach, or raise `NotCompiled` where that cannot be told.

    Of functions whose code is not in `executed`, what they read is left out: given the same values of all
    else, the function takes the same way and does not come to them. None: everything is visited.
    """
    walk = Walk(executed)
    walk.key.append(torch.get_default_dtype())
    walk.visit(function)
    for hooks in hooks_of_all_modules():
        walk.visit(hooks)
    walk.finish()
    return Captures(tuple(walk.key), walk.tensors, walk.kept, frozenset(walk.codes))


def hooks_of_all_modules() -> list[dict[int, Callable[..., Any]]]:
    """Return the hooks that torch calls for any module, of each kind that there is one of."""
    kinds = ("forward_pre", "forward", "backward_pre", "backward")
    found = (getattr(nn.modules.module, f"_global_{kind}_hooks") for kind in kinds)
    return [hooks for hooks in found if hooks]


class Walk:
    """Visits what a function can reach, and refuses what cannot be told."""

    def __init__(self, executed: Container[types.CodeType] | None) -> None:
        self.executed = executed
        self.key: list[Hashable] = []
        self.tensors: list[Tensor] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # what was seen stays alive, and its id its own
        self.names: set[str] = set(_IMPLIED)
        self.texts: set[str] = set()  # what may name an attribute where code asks for one by a variable
        self.owners: dict[type | types.ModuleType, None] = {}  # classes and modules, read by name
        self.members: set[tuple[int, str]] = set()
        self.codes: set[types.CodeType] = set()

    def visit(self, value: Any) -> None:
        """Take a value, and what can be reached from it."""
        kind = type(value)
        if kind in _PLAIN:
            # 0.0 equals -0.0 and nan not itself
            self.key.append((kind, repr(value) if kind in (float, complex) else value))
            if kind is str:
                self.texts.add(value)
            return
        known = self.seen.get(id(value))
        if known is not None:
            self.key.append(("seen", known))
            return
        self.seen[id(value)] = len(self.kept)
        self.kept.append(value)
        if len(self.kept) > _MOST:
            raise NotCompiled("it reaches too many objects to know what it depends on")
        self._visit_object(kind, value)

    def _visit_object(self, kind: type, value: Any) -> None:
        if isinstance(value, Tensor):
            self._tensor(kind, value)
        elif kind in (tuple, list, torch.Size, set, frozenset):
            self._items(kind, tuple(value))
        elif kind is slice:
            self._items(kind, (value.start, value.stop, value.step))
        elif kind is dict:
            self._mapping(kind, value)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.MethodType:
            self.key.append("method")
            self.visit(value.__func__)
            self.visit(value.__self__)
        elif kind is functools.partial:
            self.key.append("partial")
            for each in (value.func, value.args, value.keywords):
                self.visit(each)
        elif kind is weakref.ref:
            self.key.append("reference")
            self.visit(value())
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, Made):
            self.key.append((Made, value.number))
            self.codes.add(value.code)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif of_library(value):
            self._fixed(value)
        elif _is_fixed(kind):
            self.key.append((kind, getattr(value, "_cls", None)))  # an inspector says the same of one class
        else:
            self._instance(kind, value)

    def finish(self) -> None:
        """Visit what the code names of the classes and modules that it reaches, until there is no more."""
        while True:
            wanted = [
                (owner, name)
                for owner in list(self.owners)
                for name in sorted(self._wanted(owner))
                if (id(owner), name) not in self.members
            ]
            if not wanted:
                return
            for owner, name in wanted:
                self.members.add((id(owner), name))
                self.key.append(name)
                self.visit(_unwrapped(vars(owner)[name]))

    def _wanted(self, owner: type | types.ModuleType) -> set[str]:
        """Return the names in use of a class or module: those in code, and methods that ran unnamed."""
        held, ran = vars(owner), self.executed or ()
        named = self.names & held.keys()
        if isinstance(owner, types.ModuleType):
            return named if self.names.isdisjoint(_BY_TEXT) else named | (self.texts & held.keys())
        return named | {
            name
            for name, each in held.items()
            if isinstance(each, types.FunctionType) and each.__code__ in ran
        }

    def _tensor(self, kind: type, value: Tensor) -> None:
        if kind not in (Tensor, nn.Parameter):
            raise NotCompiled(f"it uses a tensor of class {kind.__name__}")
        if value.layout is not torch.strided:
            raise NotCompiled("it uses a sparse tensor")
        self.key.append((value.shape, value.dtype, value.device, value.requires_grad))
        self.tensors.append(value)

    def _fixed(self, value: Any) -> None:
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            raise NotCompiled(f"it uses a method of a {type(owner).__name__} that it holds")
        self.key.append(id(value))

    def _module(self, value: types.ModuleType) -> None:
        if value.__name__.split(".")[0] in _FICKLE:
            raise NotCompiled(f"its code names the module {value.__name__!r}, whose answers may change")
        self.key.append(id(value))
        if not of_library(value):
            self.owners[value] = None

    def _items(self, kind: type, items: tuple[Any, ...]) -> None:
        self.key.append((kind, len(items)))
        for item in items:
            self.visit(item)

    def _mapping(self, kind: type, value: dict[Any, Any]) -> None:
        self.key.append((kind, len(value)))
        for name, item in value.items():
            self.visit(name)
            self.visit(item)

    def _function(self, value: types.FunctionType) -> None:
        if of_library(value):
            self.key.append(id(value))
            return
        code = value.__code__
        self.key.append(code)
        for cell in value.__closure__ or ():
            try:
                self.visit(cell.cell_contents)
            except ValueError:  # an empty cell: a variable that is not set yet
                self.key.append("empty")
        self.visit(value.__defaults__)
        self.visit(value.__kwdefaults__)
        if value.__dict__:
            self._mapping(dict, value.__dict__)
        if self.executed is None or code in self.executed:
            self._read(value)

    def _read(self, value: types.FunctionType) -> None:
        """Take what the code of a function names."""
        self._check_code(value.__code__)
        read, names = _names(value.__code__)
        self.names |= names
        self.codes |= _inside(value.__code__)
        for name in sorted(read & value.__globals__.keys()):
            self.key.append(name)
            self.visit(value.__globals__[name])

    def _check_code(self, code: types.CodeType) -> None:
        """Refuse code that does what a trace would not repeat."""
        if reason := _obstacle(code):
            raise NotCompiled(reason)

    def _instance(self, kind: type, value: Any) -> None:
        state = getattr(value, "__dict__", None)
        slots = [name for owner in kind.__mro__ for name in vars(owner).get("__slots__", ())]
        if not self._built_in(value) and state is None and not slots:
            raise NotCompiled(f"it uses a {kind.__name__}, which may change unseen")
        self._class(kind)
        if state is not None:
            self._mapping(dict, state)
        for name in slots:
            self.visit(getattr(value, name, None))

    def _built_in(self, value: Any) -> bool:
        """Take the number, text or items that an object is beside its attributes; return if it is one."""
        for base in (int, float, complex, str, bytes):
            if isinstance(value, base):
                self.key.append((base, base.__repr__(value)))
                return True
        holders: tuple[Any, ...] = (tuple, list, set, frozenset)
        for holder in holders:
            if isinstance(value, holder):
                self._items(holder, tuple(holder.__iter__(value)))
                return True
        if isinstance(value, dict):
            self._mapping(dict, dict(dict.items(value)))
            self.visit(getattr(value, "default_factory", None))
        return isinstance(value, dict)

    def _class(self, kind: type) -> None:
        """Take a class by its identity and its plain attributes; its methods where the code names them."""
        self.key.append(kind)
        for owner in kind.__mro__:
            if owner.__module__.split(".")[0] in _LIBRARY or owner in self.owners:
                continue
            self.owners[owner] = None
            for name, each in vars(owner).items():
                if isinstance(each, Tensor) or (type(each) in _PLAIN and not name.startswith("__")):
                    self.key.append(name)
                    self.visit(each)


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the globals that code reads, and all names in it; with those of functions inside it."""
    operations = (each for inner in _inside(code) for each in dis.get_instructions(inner))
    read = {each.argval for each in operations if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    texts = {each for inner in _inside(code) for each in inner.co_consts if isinstance(each, str)}
    return frozenset(read), _all_names(code) | texts


def names_of(code: types.CodeType) -> frozenset[str]:
    """Return all names in code, with those of functions inside it."""
    return _names(code)[1]


@functools.cache
def global_names(code: types.CodeType) -> frozenset[str]:
    """Return the globals that code reads or sets, with those of functions inside it."""
    found = (each for inner in _inside(code) for each in dis.get_instructions(inner))
    kinds = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
    return frozenset(each.argval for each in found if each.opname in kinds)


@functools.cache
def _obstacle(code: types.CodeType) -> str:
    """Return what code does that a trace would not repeat, or that cannot be told; "" for nothing."""
    for each in sorted(_inside(code), key=lambda inner: inner is not code):
        setting = ("STORE_GLOBAL",) if each.co_name == "__init__" else ("STORE_ATTR", "STORE_GLOBAL")
        for step in dis.get_instructions(each):
            outer = step.opname == "STORE_DEREF" and step.argval in each.co_freevars
            if step.opname == "IMPORT_NAME" and step.argval.split(".")[0] not in (*_LIBRARY, "weft"):
                return f"it imports {step.argval!r} where it runs, which may change unseen"
            if outer or step.opname in setting:
                return f"it sets {step.argval!r}, which outlives the call"
    if any(map(_compares_types, _inside(code))):
        return "it compares types, and a tensor that is recorded has one of its own"
    forbidden = sorted(_all_names(code) & _FORBIDDEN)
    return f"its code names {forbidden[0]!r}, which a trace would not repeat" if forbidden else ""


def _compares_types(code: types.CodeType) -> bool:
    steps = {(each.opname, each.argval) for each in dis.get_instructions(code)}
    asked = "__class__" in code.co_names or ("LOAD_GLOBAL", "type") in steps
    return asked and not {name for name, _ in steps}.isdisjoint(("IS_OP", "COMPARE_OP", "CONTAINS_OP"))


def _all_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(name for each in _inside(code) for name in each.co_names)


@functools.cache
def _inside(code: types.CodeType) -> frozenset[types.CodeType]:
    """Return code and that of functions inside it."""
    inner = [_inside(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset([code]).union(*inner)


def is_trusted(module: str) -> bool:
    """Whether the functions of a module, by its name, read nothing that changes."""
    root = module.split(".")[0]
    return root in _LIBRARY or root == "weft" or (root in sys.stdlib_module_names and root not in _FICKLE)


def of_library(value: Any) -> bool:
    """Whether this is a function or module of Python or torch, whose behaviour is fixed."""
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0] in _LIBRARY
    if isinstance(value, _TORCH_FUNCTIONS) or type(value).__name__ in ("OpOverloadPacket", "OpOverload"):
        return True
    if not isinstance(value, types.FunctionType):
        return False
    module = (
        value.__globals__.get("__name__") or ""
    )  # `functools.wraps` gives a function another `__module__`
    return module.split(".")[0] in _LIBRARY


def has_state(value: Any) -> bool:
    """Return whether an object has attributes that may change."""
    return isinstance(getattr(value, "__dict__", None), dict) and not isinstance(
        value, (types.FunctionType, Tensor)
    )


def _is_fixed(kind: type) -> bool:
    return kind.__module__ in _FIXED or bool(vars(kind).get("read_by_no_message"))


def _unwrapped(method: Any) -> Any:
    """Return the function behind a property, a static or a class method."""
    if isinstance(method, functools.partial):
        return method
    for name in ("fget", "__func__", "func"):
        inner = getattr(method, name, None)
        if isinstance(inner, types.FunctionType):
            return inner
    return method
