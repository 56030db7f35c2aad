"""Registries: the entries of one plural folder, by name.

A plural folder (layers, datasets, strategies …) holds interchangeable things, one file each. A decorator
enters each thing under its name, and the folder is read with its sub-folders on the first look-up: adding one
more edits no existing file. What a user writes elsewhere is named by its code, "my_package.my_module:Mine",
in a recipe and in every process of a run.
"""

import difflib
import pkgutil
import threading
from abc import ABC
from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import getmro, isclass
from typing import Any, Generic, TypeVar

from weft.errors import MissingExtra, RecipeError, UnknownName, WeftError

T = TypeVar("T")
_reading = threading.RLock()


class Registry(Generic[T]):
    """The entries of one plural folder, by name. The folder and those in it are read on the first look-up."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}
        self._read = self._begun = False

    def add(self, *names: str) -> Callable[[T], T]:
        """Enter the decorated class or function under the given names; the first is the one shown."""

        def enter(entry: T) -> T:
            for name in names:
                held = self._entries.setdefault(name, entry)
                if held is not entry:
                    raise WeftError(
                        f"two {self.kind}s are named {name!r}: {_label(held)} and {_label(entry)}"
                    )
            return entry

        return enter

    def names(self) -> list[str]:
        """Return all names, sorted."""
        if not self._read:
            with _reading:  # another thread waits for all entries; what is being read may look some up itself
                self._read_folder()
        return sorted(self._entries)

    def _read_folder(self) -> None:
        if self._begun:
            return
        self._begun = True
        try:
            folder = import_module(self.package).__path__
            for module in pkgutil.walk_packages(folder, prefix=f"{self.package}."):
                import_module(module.name)
        finally:
            self._read = True

    def __contains__(self, name: str) -> bool:
        return ":" in name or name in self.names()

    def __getitem__(self, name: str) -> T:
        known = self.names()
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            return self._of_user(name)
        raise UnknownName(f"no {self.kind} {name!r}; {suggest(name, known)}known: {', '.join(known)}")

    def _of_user(self, name: str) -> T:
        """Return the user's own entry by the name of its code; it must be what all entries here are."""
        from weft.code import load_code  # which suggests names with what is below

        found: Any = load_code(name, self.kind)
        entries: list[Any] = list(self._entries.values())
        if all(isclass(entry) for entry in entries):
            needed = set.intersection(*({*getmro(entry)} for entry in entries)) - {object, ABC}
            lacking = needed - {*getmro(found)} if isclass(found) else needed
            if lacking:
                expected = max(lacking, key=lambda kind: len(getmro(kind))).__name__
                raise RecipeError(f"{name} is no {self.kind}: expected a subclass of {expected}")
        elif not callable(found):
            raise RecipeError(f"{name} is no {self.kind}: expected a function")
        entry: T = found
        return entry


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'? " for the nearest known name, or the empty string."""
    near = difflib.get_close_matches(name, list(known), n=5)

    def likeness(other: str) -> tuple[float, bool]:
        # Of names that are equally near, two letters in the wrong order are the likelier slip: gnc, gcn, sgc.
        return difflib.SequenceMatcher(None, other, name).ratio(), sorted(other) == sorted(name)

    return f"did you mean {max(near, key=likeness)!r}? " if near else ""


def require(module: str, extra: str) -> Any:
    """Return the imported optional module, or raise with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{module} is not installed; install it with: pip install 'weft[{extra}]'"
        ) from error


def _label(entry: object) -> str:
    return str(getattr(entry, "__qualname__", entry))
