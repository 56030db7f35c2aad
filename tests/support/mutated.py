"""Files as an accident or a stranger would leave them: cut, flipped, spliced, odd in headers and JSON."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ODD: list[Any] = [None, True, -1, 0, 2**63, 1e308, "", "..", "/etc/passwd", "\0", [], {}, [[[]]], {"a": None}]
_TYPES = [
    b"<f4",
    b"<i8",
    b"|O",
    b"<M8[s]",
    b"<c16",
    b"<U9",
    b"[('a', '<f4')]",
    b"|V8",
    b"<i1",
    b">f8",
    b"|b1",
]

_SETTING = re.compile(rb"^([\w.]+) = (.*)$", re.MULTILINE)
_NAMES = [b"name", b"path", b"'a b'", b"a.b.c", b'""', b'"\\u0000"']
_VALUES = [
    b"-1", b"0", b"1", b"9223372036854775807", b"1" + b"0" * 400, b"1e308", b"-0.0", b"nan", b"inf", b"true",
    b'""', b'".."', b'"/etc/passwd"', b'"\\u0000"', b'"\xc3\xa9"', b"[]", b"{}", b"[[[]]]", b"[" * 300,
    b"{ a = 1 }", b"2024-01-01", b"07:32:00", b'["a", 1]', b'"-"', b'"1e99GiB"', b'"nan"',
]  # fmt: skip


def mutations(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Give damaged forms of a file: bytes, sizes, headers of arrays, values of JSON."""
    draw = random.Random(seed)
    ways = [_flipped, _cut, _spliced, _zeroed, *([_header] * 3 if b"NUMPY" in content else [])]
    if _SETTING.search(content):
        ways += [_toml] * 8
    elif content.lstrip()[:1] in (b"{", b"["):
        ways += [_json] * 6
    for _ in range(count):
        yield draw.choice(ways)(content, draw)


def _flipped(content: bytes, draw: random.Random) -> bytes:
    held = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        held[draw.randrange(len(held))] = draw.randrange(256)
    return bytes(held)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _spliced(content: bytes, draw: random.Random) -> bytes:
    first, second = sorted(draw.randrange(len(content)) for _ in range(2))
    return content[:second] + content[first:]


def _zeroed(content: bytes, draw: random.Random) -> bytes:
    first = draw.randrange(len(content))
    length = min(draw.randint(1, 64), len(content) - first)
    return content[:first] + bytes(length) + content[first + length :]


def _header(content: bytes, draw: random.Random) -> bytes:
    """Return an array file, or an archive of them, with another type or shape of the same length."""
    found = list(re.finditer(rb"'descr': ('[^']*')|'shape': (\([^)]*\))", content))
    if not found:
        return _flipped(content, draw)
    one = draw.choice(found)
    group = 1 if one[1] else 2
    old = one[group]
    shapes = [b"()", b"(0,)", b"(-1,)", b"(9999999999,)", b"(1, 1, 1)", b"(True,)", b"('a',)", b"((("]
    new = b"'" + draw.choice(_TYPES) + b"'" if group == 1 else draw.choice(shapes)
    padded = new + b" " * max(0, len(old) - len(new))
    return content[: one.start(group)] + padded[: max(len(old), len(new))] + content[one.end(group) :]


def _json(content: bytes, draw: random.Random) -> bytes:
    try:
        value = json.loads(content)
    except ValueError:
        return _flipped(content, draw)
    for _ in range(draw.randint(1, 2)):
        value = _with_odd(value, draw)
    return json.dumps(value).encode()


def _toml(content: bytes, draw: random.Random) -> bytes:
    """Return settings of which one has an odd value, or another name, or is gone."""
    one = draw.choice(list(_SETTING.finditer(content)))
    if (what := draw.random()) < 0.1:
        return content[: one.start()] + content[one.end() :]
    name, value = (draw.choice(_NAMES), one[2]) if what < 0.2 else (one[1], draw.choice(_VALUES))
    return content[: one.start()] + name + b" = " + value + content[one.end() :]


def _with_odd(value: Any, draw: random.Random) -> Any:
    """Return JSON with one value, somewhere, that nobody expects there, or a key that is gone."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        if draw.random() < 0.15:
            return {name: held for name, held in value.items() if name != key}
        return {**value, key: _with_odd(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        return [*value[:place], _with_odd(value[place], draw), *value[place + 1 :]]
    return draw.choice(ODD)


def files_of(path: Path) -> list[Path]:
    """Return the files to damage: the path itself, or all in the folder."""
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
