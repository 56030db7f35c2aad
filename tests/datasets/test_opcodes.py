"""The opcode reader: equal values for what Planetoid holds, a refusal by name for everything else."""

import collections
import contextlib
import os

# The standard serializer makes the files under test; weft itself only ever parses them.
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import opcode_programs
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.datasets.opcodes import CsrArrays, read_opcodes
from weft.errors import FormatError

PROTOCOLS = range(6)


def written(folder: Path, value: object, protocol: int) -> Path:
    path = folder / "value"
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_csr_matrix_is_read_equal(tmp_path: Path, protocol: int, kind: type) -> None:
    matrix = kind(np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, 3]], np.float32))
    read = read_opcodes(written(tmp_path, matrix, protocol))
    assert isinstance(read, CsrArrays)
    assert read.shape == (3, 3)
    np.testing.assert_array_equal(read.indptr, [0, 1, 1, 3])
    np.testing.assert_array_equal(read.indices, [1, 0, 2])
    np.testing.assert_array_equal(read.data, np.array([2.5, 1, 3], np.float32))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">i8"),
        np.array([True, False]),
        np.zeros((0, 7), np.float32),
    ],
    ids=["int32", "fortran", "big-endian", "bool", "empty"],
)
def test_array_is_read_equal(tmp_path: Path, protocol: int, array: np.ndarray) -> None:
    read = read_opcodes(written(tmp_path, array, protocol))
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_adjacency_lists_are_read_equal(tmp_path: Path, protocol: int) -> None:
    graph = collections.defaultdict(list, {0: [1, 70_000], 1: [], 70_000: [np.int64(0), 2**40]})
    assert read_opcodes(written(tmp_path, graph, protocol)) == graph
    assert read_opcodes(written(tmp_path, {3: [1, 1]}, protocol)) == {3: [1, 1]}


def test_python_2_file_is_read_equal(tmp_path: Path) -> None:
    path = tmp_path / "ind.x"  # as cPickle of Python 2 writes an array: protocol 2, the bytes as a str
    path.write_bytes(
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03"
        b"(K\x01K\x02\x85cnumpy\ndtype\nq\x04U\x02u1K\x00K\x01\x87Rq\x05(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff"
        b"\xff\xffK\x00tb\x89U\x02\x07\xfetb."
    )
    np.testing.assert_array_equal(read_opcodes(path), np.array([7, 254], np.uint8))


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_program_in_the_file_is_refused_by_name_and_not_run(tmp_path: Path, protocol: int) -> None:
    path = written(tmp_path, {0: [Malicious(tmp_path / "ran")]}, protocol)
    with pytest.raises(FormatError, match=r"value: asks for (posix|nt)\.system"):
        read_opcodes(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_array_of_objects_is_refused(tmp_path: Path, protocol: int) -> None:
    with pytest.raises(FormatError, match="dtype 'O8'"):
        read_opcodes(written(tmp_path, np.array([1, None], object), protocol))


def deep_key(levels: int) -> bytes:
    """Return a dictionary whose key is a tuple in a tuple in a tuple …: comparing it ended the process."""
    return b"\x80\x02}(" + b")" + b"\x85" * levels + b"K\x01u."


def much_of_little(times: int) -> bytes:
    """Return a list of the same string, encoded again and again: 0.4 MB became gigabytes."""
    text = b"X" + (50_000).to_bytes(4, "little") + b"a" * 50_000
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    return b"\x80\x02](" + text + b"q\x00" + call * times + b"e."


def same_places(count: int) -> bytes:
    """Return a dictionary of whole numbers that all have the same hash: its time grew as their square."""
    keys = b"".join(
        b"\x8a\x0f" + (1 + place * (2**61 - 1)).to_bytes(15, "little") + b"K\x00" for place in range(count)
    )
    return b"\x80\x02}(" + keys + b"u."


def text(word: str) -> bytes:
    return b"X" + len(word).to_bytes(4, "little") + word.encode()


def number(value: int) -> bytes:
    return b"\x8a\x06" + value.to_bytes(6, "little")


def doubled(times: int) -> bytes:
    """Return a tuple of twice a tuple of twice …: a few bytes, whose hash or text takes 2 ** times steps."""
    return b"\x80\x04)" + b"q\x00h\x00\x86" * times


BYTE, ARRAY = b"cnumpy\ndtype\n" + text("u1") + b"\x85R", b"cnumpy.core.numeric\n_frombuffer\n"


def zeros(count: int) -> bytes:
    """Return an array whose values are a number: as many bytes would be made of it."""
    return b"\x80\x04" + ARRAY + b"(" + number(count) + BYTE + number(count) + b"\x85" + text("C") + b"tR."


def many_arrays(times: int) -> bytes:
    """Return arrays of the same bytes that may change: each copied them."""
    held = b"\x96" + (50_000).to_bytes(8, "little") + b"a" * 50_000 + b"q\x00" + BYTE + b"q\x01" + ARRAY
    call = b"h\x02(h\x00h\x01h\x04h\x03tR"
    rest = b"q\x02" + text("C") + b"q\x03" + number(50_000) + b"\x85q\x04" + call * times
    return b"\x80\x05(" + held + rest + b"t."


def long_calls(count: int, times: int) -> bytes:
    """Return calls with the same, many arguments: their time was the product."""
    call = b"ccollections\ndefaultdict\nh\x00R"
    return b"\x80\x02((" + b"N" * count + b"tq\x00" + call * times + b"t."


def far_notes(count: int) -> bytes:
    """Return values noted at places that all have the same hash."""
    return b"N" + b"".join(b"p%d\n" % (place * (2**61 - 1)) for place in range(1, count)) + b"."


HUGE_MATRIX = (
    b"cscipy.sparse.csr\ncsr_matrix\n)R}("
    + b"".join(
        text(name) + ARRAY + b"(C\x01a" + BYTE + b"K\x01\x85" + text("C") + b"tR"
        for name in ("indptr", "indices", "data")
    )
    + text("_shape")
    + (b"L" + b"9" * 400 + b"L\n") * 2
    + b"\x86ub."
)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (deep_key(300_000), "has a tuple as a key"),
        (b"\x80\x02}(\x8a\xff" + b"\x7f" * 255 + b"K\x00u.", "has a number of 2039 bits as a key"),
        (much_of_little(3000), "makes far more of its strings than it holds"),
        (same_places(20_000), "has a number of .* bits as a key"),
        (b"\x80\x04)" + b"\x85" * 200_000 + text("x") + b"\x93.", "asks for a name that is no text"),
        (doubled(40) + text("x") + b"\x93.", "asks for a name that is no text"),
        (doubled(24) + b")R.", "calls what is no constructor in a way that no array needs$"),
        (zeros(2 << 30), "holds an array whose values are no bytes"),
        (many_arrays(2000), "makes far more of its strings than it holds"),
        (long_calls(10_000, 100), "calls with other arguments than a few"),
        (far_notes(20_000), "notes a value at a place far beyond"),
        (b"c" + b"a" * 1000 + b"\n" + b"b" * 1000 + b"\n.", "asks for a{100}.b{99}, which"),
        (HUGE_MATRIX, "numbers of rows and columns are none"),
    ],
    ids=[
        *("deep", "long", "much", "collisions", "deep name", "doubled name", "doubled constructor", "zeros"),
        *("copies", "long calls", "far notes", "long name", "huge matrix"),
    ],
)
def test_small_files_cannot_take_much_time_or_memory(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(FormatError, match=told):
        read_opcodes(tmp_path / "f")


def test_programs_that_name_their_own_values_are_read_or_refused(tmp_path: Path) -> None:
    assert opcode_programs.read_programs(0, 300, 4, tmp_path / "f") > 20


@pytest.mark.slow
def test_many_programs_take_little_time_and_memory(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (300, 300))

    command = [sys.executable, opcode_programs.__file__, "1", "3000", str(tmp_path / "f")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-1000:])


def test_a_file_larger_than_what_may_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, np.zeros(1000), 2)
    monkeypatch.setenv("WEFT_READ_LIMIT", "1KB")
    with pytest.raises(FormatError, match=r"value: it would take 8\.\d+ KiB of memory"):
        read_opcodes(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nothing: no such file"):
        read_opcodes(tmp_path / "nothing")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_file_gives_a_format_error_or_a_value(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(
        pickle.dumps(
            scipy.sparse.csr_matrix(np.eye(3, dtype=np.float32)), data.draw(st.sampled_from(PROTOCOLS))
        )
    )
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "value"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with contextlib.suppress(FormatError):  # any other exception, or a hang, is the failure
        read_opcodes(path)
