"""What a function reaches and may change: put back after a trial, and as it was while it runs again.

A message is tried before it runs, and one that is made in parts runs again in backward. Neither may be seen:
numbers that it counts, lists that it appends to, draws of `random` and numpy stand as they did before.
Iterators cannot be put back: what reads one is not tried.
"""

import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from weft.compiler.tracing.captures import (
    NotCompiled,
    Walk,
    global_names,
    has_state,
    hooks_of_all_modules,
    is_trusted,
    names_of,
    of_library,
)

_MISSING = object()
_MACHINERY = (
    *("threading", "queue", "logging", "asyncio", "concurrent", "multiprocessing", "weft"),
    *("_thread", "_queue", "_io"),
)
"""Modules of what other threads work with meanwhile: nothing that a message counts."""


class _HeldPart(Protocol):
    """Something that holds values."""

    def changed(self) -> set[str]:
        """Return the names of what is not as it was, "" for what has no name."""

    def put_back(self) -> None:
        """Make it what it was."""

    def again(self) -> AbstractContextManager[None]:
        """Make it what it was while it lasts."""


@dataclass(frozen=True)
class Held:
    """What a function reached when this was made."""

    parts: list[_HeldPart]
    tensors: list[Tensor]
    used_up: str
    """What it reaches that a run uses up for good; "" for nothing."""
    whole: bool
    """Whether all that it reaches is held."""

    def restored(self) -> set[str]:
        """Put everything back as it was; return the names of what had changed, "" for items of lists."""
        names = {name for each in self.parts for name in each.changed()}
        for each in self.parts if names else ():
            each.put_back()
        return names

    @contextmanager
    def again(self) -> Iterator[None]:
        """Have everything as it was while it lasts; what is added meanwhile, as caches are, stays."""
        with ExitStack() as undo:
            for each in self.parts:
                undo.enter_context(each.again())
            yield

    def require_lasting(self) -> None:
        """Refuse to try a function that uses something up."""
        if self.used_up:
            raise NotCompiled(f"it reads a {self.used_up}, which a trial would use up")


def held_by(*functions: Callable[..., Any], executed: Container[types.CodeType] | None = None) -> Held:
    """Return all that functions can reach, as far as that can be told; `executed` as in `captures`."""
    walk = _ReachWalk(executed)
    for each in (*functions, *hooks_of_all_modules()):
        walk.visit(each)
    walk.finish()
    return Held(walk.parts(), walk.tensors, walk.used_up, not walk.cut)


@contextmanager
def undisturbed(*functions: Callable[..., Any]) -> Iterator[None]:
    """Put back what functions reach, whatever runs meanwhile."""
    held = held_by(*functions)
    try:
        yield
    finally:
        held.restored()


class _ReachWalk(Walk):
    """Visits what it can, and refuses nothing."""

    def __init__(self, executed: Container[types.CodeType] | None) -> None:
        super().__init__(executed)
        self.used_up, self.cut = "", False
        self.functions: list[types.FunctionType] = []
        self.draws: dict[int, _HeldPart] = {}

    def visit(self, value: Any) -> None:
        """Visit a value; where there are too many, no more."""
        try:
            super().visit(value)
        except NotCompiled:
            self.cut = True

    def parts(self) -> list[_HeldPart]:
        """Return what was reached and can change."""
        cells = {id(cell): cell for each in self.functions for cell in each.__closure__ or ()}
        found: list[_HeldPart] = [_HeldCell(cell) for cell in cells.values()]
        found += [_HeldNames(each.__globals__, global_names(each.__code__)) for each in self.functions]
        found += [_HeldNames(vars(each), _own_names(each)) for each in self.kept if _is_held(each)]
        found += [_HeldNames(each) for each in self.kept if isinstance(each, dict)]
        found += [_HeldItems(each) for each in self.kept if isinstance(each, _ITEMS)]
        return [*found, *self.draws.values()]

    def _visit_object(self, kind: type, value: Any) -> None:
        if _is_machinery(kind):
            return
        self._note(kind, value)
        with suppress(NotCompiled):
            super()._visit_object(kind, value)

    def _note(self, kind: type, value: Any) -> None:
        if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
            owner = value.__self__
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.visit(owner)  # `draw = generator.random`
        if isinstance(value, types.FunctionType) and not of_library(value):
            self.functions.append(value)
        if _is_used_up(kind):
            self.used_up = self.used_up or kind.__name__
        self.draws |= {id(value): _HeldDraws(*each) for each in _states(value)}

    def _read(self, value: types.FunctionType) -> None:
        """Take what code names, but for globals of what reads nothing that changes."""
        if is_trusted(value.__globals__.get("__name__") or ""):
            self.names |= names_of(value.__code__)
        else:
            super()._read(value)

    def _tensor(self, kind: type, value: Tensor) -> None:
        self.tensors.append(value)

    def _check_code(self, code: types.CodeType) -> None:
        """Refuse nothing."""


def _is_machinery(kind: type) -> bool:
    return str(kind.__module__).split(".")[0] in _MACHINERY and not issubclass(kind, nn.Module)


def _is_held(value: Any) -> bool:
    """Return whether what an object has by name is put back: of modules, those that somebody wrote alone."""
    if isinstance(value, types.ModuleType):
        return not is_trusted(value.__name__) and value.__name__.split(".")[0] not in sys.stdlib_module_names
    return has_state(value) and not _is_machinery(type(value))


def _own_names(value: Any) -> frozenset[str] | None:
    """Return the names that are put back; None: all. Importing parts of a module adds names to it."""
    return frozenset(vars(value)) if isinstance(value, types.ModuleType) else None


def _is_used_up(kind: type) -> bool:
    """Return whether objects of a class are iterators without a state that Python could put back."""
    own = getattr(kind, "__next__", None)
    return own is not None and not isinstance(own, types.FunctionType)


def _states(value: Any) -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return what reads and sets the state of a generator of random numbers; empty for all else."""
    if isinstance(value, types.ModuleType) and value.__name__ == "random":
        return [(random.getstate, random.setstate)]
    if isinstance(value, random.Random):
        return [(value.getstate, value.setstate)]
    if isinstance(value, torch.Generator):
        return [(value.get_state, value.set_state)]
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return []
    if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == "numpy":
        return [(numpy.random.get_state, numpy.random.set_state)]
    if isinstance(value, numpy.random.RandomState):
        return [(value.get_state, value.set_state)]
    source = value.bit_generator if isinstance(value, numpy.random.Generator) else value
    if isinstance(source, numpy.random.BitGenerator):
        return [(partial(getattr, source, "state"), partial(setattr, source, "state"))]
    return []


class _HeldDraws:
    """The state of a generator of random numbers."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any]) -> None:
        self.read, self.write = read, write
        self.before = read()

    def changed(self) -> set[str]:
        """Return whether numbers were drawn."""
        return set() if _same(self.read(), self.before) else {""}

    def put_back(self) -> None:
        """Draw the same again."""
        self.write(self.before)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same while it lasts."""
        now = self.read()
        self.write(self.before)
        try:
            yield
        finally:
            self.write(now)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return all(_same(each, two[name]) for name, each in one.items())
    if isinstance(one, (tuple, list)):
        return all(_same(a, b) for a, b in zip(one, two))
    return bool((one == two).all()) if hasattr(one, "all") else bool(one == two)


class _HeldNames:
    """Values by name: of an object, a dictionary, or some of a module's."""

    def __init__(self, owner: dict[Any, Any], names: Container[str] | None = None) -> None:
        self.owner, self.names = owner, names
        self.kind: Any = OrderedDict if isinstance(owner, OrderedDict) else dict
        self.before = self._now()

    def _now(self) -> dict[Any, Any]:
        items = dict.items(self.owner)
        return {name: each for name, each in items if self.names is None or name in self.names}

    def _set(self, name: Any, value: Any) -> None:
        if value is not _MISSING:
            self.kind.__setitem__(self.owner, name, value)
        elif name in self.owner:
            self.kind.__delitem__(self.owner, name)

    def _differ(self, one: dict[Any, Any], two: dict[Any, Any]) -> list[Any]:
        return [n for n in (*one, *(n for n in two if n not in one)) if not _is(one, two, n)]

    def changed(self) -> set[str]:
        """Return the names whose value is another."""
        return {str(name) for name in self._differ(self.before, self._now())}

    def put_back(self) -> None:
        """Have the values of before, and no others."""
        for name in self._differ(self.before, self._now()):
            self._set(name, self.before.get(name, _MISSING))

    @contextmanager
    def again(self) -> Iterator[None]:
        """Have the values of before under their names; others stay, and those that are added."""
        today = self._now()
        for name in (each for each in self.before if not _is(self.before, today, each)):
            self._set(name, self.before[name])
        try:
            yield
        finally:
            for name in {**self.before, **today}:
                if not _is(self.owner, today, name):
                    self._set(name, today.get(name, _MISSING))


def _is(one: dict[Any, Any], two: dict[Any, Any], name: Any) -> bool:
    return one.get(name, _MISSING) is two.get(name, _MISSING)


_ITEMS = (list, set, deque, bytearray)


class _HeldItems:
    """The items of a list, a set or a deque."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.kind: Any = next(each for each in _ITEMS if isinstance(owner, each))
        self.before = self.kind.copy(owner)

    def changed(self) -> set[str]:
        """Return whether there are other items."""
        now, before = self.owner, self.before
        if self.kind is set:
            return set() if now == before else {""}
        alike = len(now) == len(before) and all(a is b for a, b in zip(now, before))
        return set() if alike else {""}

    def put_back(self) -> None:
        """Have the items of before."""
        self._fill(self.before)

    def _fill(self, items: Any) -> None:
        self.kind.clear(self.owner)
        (self.kind.update if self.kind is set else self.kind.extend)(self.owner, items)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Have the items of before while it lasts."""
        if not self.changed():
            yield
            return
        today = self.kind.copy(self.owner)
        self._fill(self.before)
        try:
            yield
        finally:
            self._fill(today)


class _HeldCell:
    """A variable of a function around the function."""

    def __init__(self, cell: types.CellType) -> None:
        self.cell = cell
        self.before = self._now()

    def _now(self) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return _MISSING

    def _set(self, value: Any) -> None:
        if value is not _MISSING:
            self.cell.cell_contents = value
        elif self._now() is not _MISSING:
            del self.cell.cell_contents

    def changed(self) -> set[str]:
        """Return whether it has another value."""
        return set() if self._now() is self.before else {""}

    def put_back(self) -> None:
        """Give it the value of before."""
        self._set(self.before)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Give it the value of before while it lasts."""
        today = self._now()
        self._set(self.before)
        try:
            yield
        finally:
            self._set(today)
