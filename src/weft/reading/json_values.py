"""JSON that somebody else may have written: bounded in size and depth, and of the shape that was promised.

A shape is a type (`str`, `bool`, `float` for any number), `WholeNumber` for one of a range, `Amount` for a
finite number, `[shape]` for a list of such values, `{key: shape}` for an object with at least these keys,
`Each(shape)` for an object whose keys are names, `Maybe(shape)` for what may be null or absent, and `object`
for any value.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import FormatError
from weft.reading.bounds import expect_room
from weft.reading.damage import one_line

DEPTH = 100
"""Objects and lists within each other; what weft and the formats that it reads write has ten at most."""


@dataclass(frozen=True)
class WholeNumber:
    """A whole number of a range."""

    least: int = 0
    most: int = 2**62


@dataclass(frozen=True)
class Amount:
    """A finite number that is not below another."""

    least: float = 0.0


@dataclass(frozen=True)
class Each:
    """An object of any names, each with a value of one shape."""

    shape: Any


@dataclass(frozen=True)
class Maybe:
    """A value that may be null, or absent where a key leads to it."""

    shape: Any


def read_json(path: Path, shape: Any = object) -> Any:
    """Return the value of a JSON file; the shape is what the reader relies on."""
    try:
        expect_room(path.stat().st_size, path, "it")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise FormatError(f"{path}: no such file") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_json(data, path, shape)


def parse_json(data: bytes | str, where: Path | str, shape: Any = object) -> Any:
    """Return the value of JSON text, or say in one line what is wrong with it."""
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise FormatError(f"{where}: nested more than {DEPTH} levels deep") from error
    except ValueError as error:  # bytes that are no text among them
        raise FormatError(f"{where}: damaged, not valid JSON ({one_line(error)})") from error
    expect_shallow(value, where)
    expect_shape(value, shape, where)
    return value


def expect_shape(value: Any, shape: Any, where: Path | str, name: str = "") -> None:
    """Raise unless a value has a shape; the line names the first place that has another."""
    match shape:
        case Maybe(inner):
            if value is not None:
                expect_shape(value, inner, where, name)
        case Each(inner):
            _expect(isinstance(value, dict), "an object", value, where, name)
            for key, held in value.items():
                expect_shape(held, inner, where, f"{name}.{key}" if name else key)
        case dict():
            _expect(isinstance(value, dict), "an object", value, where, name)
            for key, inner in shape.items():
                if key not in value and not isinstance(inner, Maybe):
                    raise FormatError(f"{where}: lacks {name + '.' if name else ''}{key}")
                expect_shape(value.get(key), inner, where, f"{name}.{key}" if name else key)
        case [inner]:
            _expect(isinstance(value, list), "a list", value, where, name)
            for place, held in enumerate(value):
                expect_shape(held, inner, where, f"{name}[{place}]")
        case WholeNumber(least, most):
            whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
            _expect(whole, f"a whole number in {least:,} … {most:,}", value, where, name)
        case Amount(least):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            right = number and least <= value < math.inf
            _expect(right, f"a number of at least {least:g}", value, where, name)
        case _:
            kinds = (int, float) if shape is float else shape
            same = isinstance(value, kinds) and not (shape is float and isinstance(value, bool))
            _expect(same, _WORDS.get(shape, str(shape)), value, where, name)


_WORDS: dict[Any, str] = {str: "text", bool: "true or false", float: "a number", list: "a list"}
_WORDS[type(None)] = "null"


def _expect(right: bool, what: str, value: Any, where: Path | str, name: str) -> None:
    if not right:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
        raise FormatError(f"{where}: {name or 'it'} must be {what}, got {shown}")


def expect_shallow(value: Any, where: Path | str) -> None:
    """Raise where objects and lists lie within each other more than `DEPTH` levels deep."""
    level = [value]
    for _ in range(DEPTH + 1):
        inner: list[Any] = []
        for held in level:
            children = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
            inner.extend(child for child in children if isinstance(child, dict | list))
        if not inner:
            return
        level = inner
    raise FormatError(f"{where}: nested more than {DEPTH} levels deep")
