"""Arrays out of the Planetoid files without unpickling them.

The files are Python pickles, and to unpickle a file is to run whatever program it holds. This reader runs
nothing: it walks the opcodes with `pickletools.genops`, which only parses, keeps the values on a stack of its
own, and knows by name the few constructors that numpy arrays, scipy CSR matrices and dictionaries are
written with. Any other name is refused with an error that shows it. Time and memory stay in proportion to the
file: a value that it names again and again is copied, compared or shown only where that is bounded, too.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pickletools import genops
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError
from weft.reading.bounds import expect_room
from weft.reading.damage import reading


@dataclass
class CsrArrays:
    """The arrays of a CSR matrix."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    shape: tuple[int, int]


def read_opcodes(path: Path) -> Any:
    """Return the array, `CsrArrays`, dictionary or list that the file describes; nothing in it runs."""
    with reading(path):
        expect_room(path.stat().st_size, path, "it")
        raw = path.read_bytes()
        machine = _Machine(room=_FEW + _TIMES * len(raw))
        try:
            for opcode, argument, _ in genops(raw):
                machine.step(opcode.name, argument)
            return _finished(machine.stack[-1])
        except _Refused as error:
            raise FormatError(f"{path}: {error}") from error


# A file may name one string many times; what is made of it is bounded by what the file holds.
_FEW, _TIMES = 1 << 20, 8
_ARGUMENTS = 8  # of a call: those of arrays and matrices have five at most
_WORD = 100  # characters of a name or type that are shown
_SIZE = 2**40  # rows, columns and nodes


class _Refused(Exception):
    """The file asks for something that arrays and lists do not need."""


@dataclass(frozen=True)
class _Name:
    """A constructor that the file mentions."""

    word: str


@dataclass
class _Object:
    """Something under construction: made by one opcode, given its state by a later one."""

    word: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


@dataclass
class _Mark:
    """The place on the stack where a tuple, list or dictionary begins."""


# Every constructor we understand, in the spellings of Python 2 and 3 and of old and new numpy and scipy.
_NAMES = {
    ("scipy.sparse.csr", "csr_matrix"): "csr",
    ("scipy.sparse._csr", "csr_matrix"): "csr",
    ("scipy.sparse._csr", "csr_array"): "csr",
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("numpy.core.numeric", "_frombuffer"): "frombuffer",
    ("numpy._core.numeric", "_frombuffer"): "frombuffer",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    ("collections", "defaultdict"): "defaultdict",
    ("copy_reg", "_reconstructor"): "reconstructor",
    ("copyreg", "_reconstructor"): "reconstructor",
    **{
        (module, name): name for module in ("__builtin__", "builtins") for name in ("list", "object", "bytes")
    },
}

_PUSH = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "MARK": _Mark,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}


@dataclass
class _Machine:
    """A stack, a memo, and one step an opcode. All values are inert: numbers, bytes, lists, descriptions."""

    room: int
    """Bytes that may still be made of strings, and arguments that may still be given."""
    steps: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def step(self, name: str, argument: Any) -> None:
        self.steps += 1
        if name in _PUSH:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name in _PUTS or name == "MEMOIZE":
            self.remember(len(self.memo) if name == "MEMOIZE" else argument)
        elif name in _GETS:
            self.stack.append(self.memo[argument])
        elif name not in ("PROTO", "FRAME", "STOP"):
            self.combine(name, argument)

    def remember(self, place: int) -> None:
        """Note the last value; writers count places up, others could all have one hash."""
        if not 0 <= place <= self.steps:
            raise _Refused("notes a value at a place far beyond the values that it has")
        self.memo[place] = self.stack[-1]

    def call(self, constructor: Any, arguments: Any) -> Any:
        """Return what a constructor makes, where what it takes is no more than the file may ask for."""
        if type(arguments) is not tuple or len(arguments) > _ARGUMENTS:
            raise _Refused("calls with other arguments than a few in a tuple, which no array needs")
        texts = sum(len(each) for each in arguments if isinstance(each, str | bytes | bytearray))
        self.room -= len(arguments) + texts
        if self.room < 0:
            raise _Refused("makes far more of its strings than it holds")
        return _make(constructor, arguments)

    def combine(self, name: str, argument: Any) -> None:
        """Take values from the stack and put what they make in their place."""
        match name:
            case "TUPLE":
                self.stack.append(tuple(self.since_mark()))
            case "LIST":
                self.stack.append(self.since_mark())
            case "DICT":
                self.stack.append(_pairs(self.since_mark()))
            case "APPEND" | "APPENDS":
                values = self.since_mark() if name == "APPENDS" else [self.stack.pop()]
                self.stack[-1].extend(values)
            case "SETITEM" | "SETITEMS":
                values = self.since_mark() if name == "SETITEMS" else [self.stack.pop(-2), self.stack.pop()]
                self.stack[-1].update(_pairs(values))
            case "GLOBAL":
                self.stack.append(_name(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                self.stack[-2:] = [_name(*self.stack[-2:])]
            case "REDUCE" | "NEWOBJ":
                arguments = self.stack.pop()
                self.stack[-1] = self.call(self.stack[-1], arguments)
            case "BUILD":
                state = self.stack.pop()
                self.stack[-1].state = state
            case _:
                raise _Refused(f"opcode {name} has no place in a file of arrays; weft does not unpickle")

    def since_mark(self) -> list[Any]:
        start = len(self.stack) - 1
        while not isinstance(self.stack[start], _Mark):
            start -= 1
        values = self.stack[start + 1 :]
        del self.stack[start:]
        return values


def _pairs(values: list[Any]) -> dict[Any, Any]:
    """Return a dictionary by node or by name; other keys could take any time, or any depth, to compare."""
    for key in values[::2]:
        if not isinstance(key, str) and not (type(key) is int and 0 <= key < _SIZE):
            kind = (
                f"a number of {key.bit_length()} bits" if isinstance(key, int) else f"a {type(key).__name__}"
            )
            raise _Refused(f"has {kind} as a key where a node or a name was expected")
    return dict(zip(values[::2], values[1::2], strict=True))


def _name(module: Any, name: Any) -> _Name:
    if type(module) is not str or type(name) is not str:  # to look up a tuple is to go through all in it
        raise _Refused("asks for a name that is no text")
    if (module, name) not in _NAMES:
        told = _shown(f"{module[:_WORD]}.{name[:_WORD]}")
        raise _Refused(f"asks for {told}, which no array needs; weft does not unpickle, nothing was executed")
    return _Name(_NAMES[module, name])


def _shown(text: str) -> str:
    """Return the beginning of a text of the file, on one line."""
    return " ".join(text[: 2 * _WORD].split())


def _make(constructor: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what a known constructor would: a value, or a description that later receives its state."""
    match constructor:
        case _Name("defaultdict"):
            return {}
        case _Name("list" | "bytes" as word) if not arguments:
            return [] if word == "list" else b""
        case _Name("encode") if arguments[1] in ("latin1", "latin-1"):
            return arguments[0].encode("latin-1")
        case _Name("scalar"):
            return np.frombuffer(_bytes(arguments[1]), _dtype(arguments[0]))[0].item()
        case _Name("frombuffer"):
            raw, dtype, shape, order = arguments
            return _array(raw, dtype, shape, order)
        case _Name("reconstruct" | "reconstructor"):
            return _Object(arguments[0].word)
        case _Name("dtype" | "csr" | "ndarray" as word):
            return _Object(word, arguments)
    # A value is not shown: of a few bytes that name each other, its text may be of any length.
    called = constructor.word if isinstance(constructor, _Name) else "what is no constructor"
    raise _Refused(f"calls {called} in a way that no array needs")


def _finished(value: Any) -> Any:
    """Return the value with a description of an array or matrix turned into the thing itself."""
    match value:
        case _Object("ndarray"):
            return _array_of(value)
        case _Object("csr"):
            state: dict[str, Any] = value.state
            indptr, indices, data = (_array_of(state[name]) for name in ("indptr", "indices", "data"))
            rows, columns = state["_shape"] if "_shape" in state else state["shape"]
            return CsrArrays(indptr, indices, data, (_size(rows), _size(columns)))
        case _Object(word):
            raise _Refused(f"holds a {word!r} where an array, a matrix or a dictionary was expected")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _SIZE:
        raise _Refused("holds a matrix whose numbers of rows and columns are none")
    return value


def _array_of(description: Any) -> NDArray[Any]:
    if isinstance(description, np.ndarray):  # protocol 5 makes arrays in one call
        return description
    _, shape, dtype, fortran, raw = description.state
    return _array(raw, dtype, shape, "F" if fortran else "C")


def _array(raw: Any, dtype: Any, shape: tuple[int, ...], order: Any) -> NDArray[Any]:
    number = _dtype(dtype)
    return np.frombuffer(_bytes(raw), number).reshape(shape, order=order)


def _dtype(description: Any) -> np.dtype[Any]:
    code = description.arguments[0]
    order = description.state[1] if description.state else "="
    if not re.fullmatch(r"[biuf]\d{1,2}", code):
        raise _Refused(f"holds an array of dtype '{_shown(code)}'; only numbers are read")
    dtype: np.dtype[Any] = np.dtype(code).newbyteorder("=" if order == "|" else order)
    return dtype


def _bytes(raw: Any) -> bytes:
    # Python 2 wrote arrays as strings; the parser gives those as latin-1 text.
    if not isinstance(raw, str | bytes | bytearray):  # a number would become as many zeros
        raise _Refused("holds an array whose values are no bytes")
    return raw.encode("latin-1") if isinstance(raw, str) else bytes(raw)
