"""How much may be read: what is free, or what the user says."""

import io
from pathlib import Path

import pytest

from weft.errors import FormatError, RecipeError
from weft.machine import free_memory
from weft.reading.bounds import CountedStream, expect_room, readable_bytes


def test_the_bound_is_the_free_memory_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_READ_LIMIT", raising=False)
    assert readable_bytes() == pytest.approx(free_memory(), rel=0.5)
    monkeypatch.setenv("WEFT_READ_LIMIT", "3GiB")
    assert readable_bytes() == 3 * 2**30
    expect_room(3 * 2**30, Path("f"), "x")
    with pytest.raises(FormatError, match=r"f: x would take 3\.\d+ GiB"):
        expect_room(3 * 2**30 + 2**28, Path("f"), "x")
    monkeypatch.setenv("WEFT_READ_LIMIT", "much")
    with pytest.raises(RecipeError, match="WEFT_READ_LIMIT: expected a size"):
        readable_bytes()


def test_streams_end_where_the_bound_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_READ_LIMIT", "10")
    stream = CountedStream(io.BytesIO(bytes(11)), Path("f"))
    assert len(stream.read(10)) == 10
    with pytest.raises(FormatError, match="f: what it holds, unpacked"):
        stream.read(1)


def test_the_values_of_a_table_count_beside_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_READ_LIMIT", "100")
    stream = CountedStream(io.BytesIO(b"1,2\n3,4\n5,6\n"), Path("f"), value_bytes=20)
    assert stream.read(8) == b"1,2\n3,4\n"
    with pytest.raises(FormatError, match="f: what it holds, unpacked, would take 132 bytes"):
        stream.read(4)
