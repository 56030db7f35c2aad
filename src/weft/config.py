"""Recipes: what a run is, as TOML, checked against the things it configures.

A recipe has five sections. There is no schema beside the code: `[train]` is checked against the training
settings, `[model]` against the constructors of the stack and of its layer, `[data]` against the function that
loads the data, `[task]` against the task, `[strategy]` against the strategy. `bind` does it, for a dataclass
and a callable alike.

    [data]
    path = "cora.npz"
    [model]
    name = "gcn"
    hidden = 16
    [train]
    epochs = 200
"""

import dataclasses
import hashlib
import inspect
import json
import math
import re
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from weft.errors import RecipeError, WeftWarning
from weft.reading.toml_values import parse_toml
from weft.registry import suggest

SECTIONS = ("data", "task", "model", "strategy", "train")

# Settings of [data] that mean the same whatever the source: the keywords of `weft.datasets.prepare.prepare`,
# by name since this module loads no torch.
EVERY_DATA = frozenset(
    {
        "symmetrise",
        "inverse_relations",
        "self_loops",
        "normalise_features",
        "identity_features",
        "train_fraction",
        "val_fraction",
        "split_seed",
    }
)


@dataclass(frozen=True)
class Range:
    """The numbers that an option accepts: `Annotated[int, Range(least=1)]`."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        bounds = ((">=", self.least), (">", self.above), ("<=", self.most), ("<", self.below))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))


# Options with these names mean the same wherever they stand, so a constructor need not repeat their range.
KNOWN_RANGES = {
    "hidden": Range(least=1),
    "layers": Range(least=1),
    "heads": Range(least=1),
    "bases": Range(least=1),
    "hops": Range(least=1),
    "dropout": Range(least=0, below=1),
    "input_dropout": Range(least=0, below=1),
    "attention_dropout": Range(least=0, below=1),
}


@dataclass(frozen=True)
class Recipe:
    """What a run is: five sections of plain values, as read from TOML or built in Python."""

    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the sections as plain dictionaries, ready for JSON."""
        return {name: dict(getattr(self, name)) for name in SECTIONS}


def read_recipe(path: str | Path | None = None, *, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe in a TOML file (or an empty one) with `section.key=value` overrides applied."""
    return make_recipe(_read_toml(Path(path)) if path is not None else {}, overrides=overrides)


def make_recipe(sections: Mapping[str, Any], *, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe that a mapping of sections describes, with `section.key=value` overrides applied."""
    for name, section in sections.items():
        if name not in SECTIONS:
            raise RecipeError(
                f"unknown section [{name}]; {suggest(name, SECTIONS)}known: {', '.join(SECTIONS)}"
            )
        if not isinstance(section, Mapping):
            raise RecipeError(f"{name}: expected a section [{name}], got {section!r}")
    merged = {name: dict(sections.get(name, {})) for name in SECTIONS}
    settings = [_parse_override(text) for text in overrides]
    _replace_source(merged["data"], dict(settings))
    for keys, value in settings:
        _assign(merged, keys, value)
    return Recipe(**merged)


def bind(target: Any, options: Mapping[str, Any], where: str, *, given: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options, converted, as keyword arguments for a dataclass, a class or a function.

    `target` may be a list of them, whose options are taken together; a constructor that takes `**options` has
    those of the next one, which it passes them on to. `where` is the section that messages
    name, and `given` are the arguments that the caller passes itself, so that no option may.
    """
    known = _parameters(target if isinstance(target, list) else [target])
    for name in given:
        known.pop(name, None)
    for key in options:
        if key not in known:
            names = sorted(known)
            listed = f"known: {', '.join(names)}" if names else "there are no options here"
            raise RecipeError(f"unknown key {where}.{key}; {suggest(key, names)}{listed}")
    return {key: convert(value, known[key], f"{where}.{key}") for key, value in options.items()}


def parameters(target: Any, *, given: Iterable[str] = ()) -> list[str]:
    """Return the names that `bind` accepts, in order."""
    targets = target if isinstance(target, list) else [target]
    return [name for name in _parameters(targets) if name not in given]


def convert(value: Any, annotation: Any, where: str) -> Any:
    """Return the value as the annotated type, or raise saying what was expected and what came."""
    try:
        return _convert(value, annotation, where)
    except TypeError:
        origin, arguments = get_origin(annotation), get_args(annotation)
        hint = suggest(value, map(str, arguments)) if origin is Literal and isinstance(value, str) else ""
        raise RecipeError(f"{where}: {hint}expected {describe(annotation)}, got {_show(value)}") from None


def describe(annotation: Any) -> str:
    """Return what an annotation accepts, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe(arguments[0])
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments if argument is not type(None))
    if _is_list(annotation, origin):
        return f"a list of {describe(arguments[0]).split(' ', 1)[-1]}s" if arguments else "a list"
    if annotation is dict or origin in (dict, Mapping):
        return "a table"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", Path: "a path"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """Return a fingerprint of a resolved recipe: equal for equal settings, whatever their order."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """Return "section.key: old → new" for each setting that differs."""
    found: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, prefix=f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {_show(before)} → {_show(after)}")
    return found


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a recipe as TOML text. Settings that are None are left out, which is what they mean."""
    lines: list[str] = []
    for name, section in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml_value(value)}" for key, value in section.items() if value is not None]
        lines.append("")
    return "\n".join(lines)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RecipeError(f"no recipe {path}; see recipes/ for examples") from None
    except IsADirectoryError:
        raise RecipeError(f"recipe {path} is a folder; name the .toml file") from None
    except OSError as error:
        raise RecipeError(f"cannot read recipe {path}: {error.strerror}") from None
    return parse_toml(data, str(path))


def _parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    name, equals, value = text.partition("=")
    keys = tuple(name.strip().split("."))
    if not equals or len(keys) < 2 or not all(keys):
        raise RecipeError(f"--set {text}: expected section.key=value, for example --set train.epochs=50")
    return keys, parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Return a TOML value, or the text itself where it is none: `0.01`, `true`, `[1, 2]`, `../cora.npz`."""
    try:
        parsed = parse_toml(f"value = {text}", "it")
    except RecipeError:
        return text
    value = parsed["value"]
    plain = isinstance(value, bool | int | float | str | list | dict)
    return value if plain and len(parsed) == 1 else text


def _replace_source(data: dict[str, Any], changes: Mapping[tuple[str, ...], Any]) -> None:
    """Drop what belongs to a source of data that is replaced by one of another kind, and say so."""
    for source in ("path", "name"):
        new = changes.get(("data", source), data.get(source))
        same_kind = source == "path" and "path" in data  # another file: what is done to it stays the same
        if new == data.get(source) or same_kind:
            continue
        dropped = [key for key in data if key not in EVERY_DATA]
        for key in dropped:
            del data[key]
        lost = [f"data.{key}" for key in dropped if key not in ("path", "name")]
        if lost:
            message = (
                f"data.{source}={new} is another source of data: {', '.join(lost)} of the recipe dropped"
            )
            warnings.warn(message, WeftWarning, stacklevel=3)


def _assign(sections: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    if keys[0] not in SECTIONS:
        hint = suggest(keys[0], SECTIONS)
        raise RecipeError(f"--set {'.'.join(keys)}: unknown section; {hint}known: {', '.join(SECTIONS)}")
    table = sections
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise RecipeError(f"--set {'.'.join(keys)}: {key} holds {_show(table)}, not a table")
    table[keys[-1]] = value


def _parameters(targets: list[Any]) -> dict[str, Any]:
    """Return the annotation of each named parameter, with the range known for its name if none is stated."""
    known: dict[str, Any] = {}
    for target in targets:
        for name, annotation in _annotations(target).items():
            known.setdefault(name, _with_range(name, annotation))
    return known


def _annotations(target: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(target):
        hints = get_type_hints(target, include_extras=True)
        return {item.name: hints[item.name] for item in dataclasses.fields(target) if item.init}
    found: dict[str, Any] = {}
    for function in _constructors(target) if inspect.isclass(target) else [target]:
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError:  # a name that only type checkers import: the callable checks that argument itself
            hints = {}
        for item in inspect.signature(function).parameters.values():
            if item.kind in _NAMED and item.name != "self":
                found.setdefault(item.name, hints.get(item.name, Any))
    return found


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def default_of(target: Any, name: str) -> Any:
    """Return the default of an option that `bind` accepts; None where it has none."""
    for function in _constructors(target) if inspect.isclass(target) else [target]:
        item = inspect.signature(function).parameters.get(name)
        if item is not None:
            return None if item.default is inspect.Parameter.empty else item.default
    return None


def _constructors(kind: type) -> Iterator[Callable[..., Any]]:
    """Give the constructor of a class, and those that it passes `**options` on to."""
    for base in kind.__mro__:
        function = vars(base).get("__init__")
        if function is not None and base is not object:
            yield function
            given = inspect.signature(function).parameters.values()
            if not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in given):
                return


def _with_range(name: str, annotation: Any) -> Any:
    bounds = KNOWN_RANGES.get(name)
    return Annotated[annotation, bounds] if bounds and get_origin(annotation) is not Annotated else annotation


def _convert(value: Any, annotation: Any, where: str) -> Any:
    """Return the converted value; TypeError says that it is of another type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _in_range(_convert(value, arguments[0], where), arguments[1:], where)
    if annotation in (Any, inspect.Parameter.empty):
        return value
    if origin is Literal:
        matching = [each for each in arguments if type(each) is type(value) and each == value]
        return _expect(value, bool(matching))  # of the same type too: to Python 8.0 == 8 and True == 1
    if origin in (Union, types.UnionType):
        return _convert_union(value, arguments, where)
    if _is_list(annotation, origin):
        _expect(value, isinstance(value, list | tuple))
        items = [
            convert(item, arguments[0] if arguments else Any, f"{where}[{i}]") for i, item in enumerate(value)
        ]
        return tuple(items) if tuple in (annotation, origin) else items
    if annotation is dict or origin in (dict, Mapping):
        return _expect(value, isinstance(value, Mapping))
    if annotation is float:
        return float(_expect(value, isinstance(value, int | float) and not isinstance(value, bool)))
    if annotation is int:
        return _expect(value, isinstance(value, int) and not isinstance(value, bool))
    if annotation is None or annotation is type(None):
        return _expect(value, value is None)
    if annotation is Path:
        return Path(_expect(value, isinstance(value, str | Path)))
    return _expect(
        value, not inspect.isclass(origin or annotation) or isinstance(value, origin or annotation)
    )


def _convert_union(value: Any, arguments: tuple[Any, ...], where: str) -> Any:
    # An exact type first: 3 for `float | int` stays a whole number.
    for argument in sorted(arguments, key=lambda item: type(value) is not item):
        try:
            return _convert(value, argument, where)
        except TypeError:
            continue
    raise TypeError


def _expect(value: Any, holds: bool) -> Any:
    if not holds:
        raise TypeError
    return value


def _in_range(value: Any, constraints: tuple[Any, ...], where: str) -> Any:
    for number in value if isinstance(value, list | tuple) else [value]:
        for bounds in constraints:
            if isinstance(bounds, Range) and isinstance(number, int | float) and number not in bounds:
                raise RecipeError(f"{where}: expected a number {bounds}, got {number!r}")
    return value


def _is_list(annotation: Any, origin: Any) -> bool:
    return annotation in (list, tuple) or origin in (list, tuple, Sequence)


def _show(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)  # then a JSON string is a TOML basic string


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
