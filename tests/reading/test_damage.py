"""What goes wrong while a file is read is told in one line that names it."""

import tokenize
import zlib

import pytest

from weft.errors import FormatError, GraphError
from weft.reading.damage import reading


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("a\nb"), r"^f: damaged, or not in the format it should have \(ValueError: a b\)"),
        (KeyError("x"), "KeyError: 'x'"),
        (tokenize.TokenError("EOF in multi-line statement", (1, 0)), "TokenError"),
        (OverflowError("too large"), "OverflowError"),
        (zlib.error("invalid"), r"truncated or damaged \(invalid\)"),
        (RecursionError(), "nested too deeply"),
        (MemoryError(), "needs more memory"),
        (ValueError("Object arrays cannot be loaded when allow_pickle=False"), "which weft never opens"),
        (PermissionError(13, "Permission denied"), "cannot be read: Permission denied"),
        (FileNotFoundError(2, "No such file", "g"), "^g: no such file or folder"),
    ],
)
def test_errors_of_readers_become_one_line(error: Exception, told: str) -> None:
    with pytest.raises(FormatError, match=told) as caught, reading("f"):
        raise error
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)


def test_lines_of_weft_and_interrupts_pass() -> None:
    with pytest.raises(GraphError, match=r"^mine$"), reading("f"):
        raise GraphError("mine")
    with pytest.raises(KeyboardInterrupt), reading("f"):
        raise KeyboardInterrupt
