"""Arrays by what their headers say: right ones as numpy reads them, wrong ones refused in one line."""

import io
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.errors import FormatError
from weft.reading import arrays
from weft.reading.arrays import NpzArrays, read_npy

VALUES = {
    "numbers": np.arange(6, dtype=np.int16).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "words": np.array(["a", "bcd"]),
    "one": np.array(3),
    "none": np.empty((0, 4), np.float32),
    "large": np.arange(400_000),
}


def test_archives_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **VALUES)
    read = NpzArrays(tmp_path / "a.npz")
    assert set(read) == set(VALUES)
    for name, expected in VALUES.items():
        assert read[name].dtype == expected.dtype
        np.testing.assert_array_equal(read[name], expected)


def test_single_arrays_are_mapped_and_may_be_changed_in_memory(tmp_path: Path) -> None:
    for name, expected in VALUES.items():
        np.save(tmp_path / f"{name}.npy", expected)
        np.testing.assert_array_equal(read_npy(tmp_path / f"{name}.npy"), expected)
    mapped = read_npy(tmp_path / "numbers.npy")
    mapped[0, 0] = 9
    assert np.load(tmp_path / "numbers.npy")[0, 0] == 0


def test_array_and_archive_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.arange(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(FormatError, match=r"one\.npz: holds a single array"):
        NpzArrays(tmp_path / "one.npz")
    np.savez(tmp_path / "many.npz", a=np.arange(3))
    (tmp_path / "many.npz").rename(tmp_path / "many.npy")
    with pytest.raises(FormatError, match=r"many\.npy: holds an archive"):
        read_npy(tmp_path / "many.npy")


def archive(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a.npy", content)
    return path


def header(text: str) -> bytes:
    held = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(held).to_bytes(2, "little") + held


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no magic at all", "damaged, or not in the format"),
        (b"", "damaged, or not in the format"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': ((("), "damaged, or not in the format"),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"), "holds Python objects"),
        (header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}") + bytes(8), "only numbers and"),
        (header("{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}") + bytes(16), "only numbers and"),
        (header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}") + bytes(4), "only numbers"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "which no array has"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (9,)}"), "needs 36 bytes, it holds 0"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (9" + "9" * 20 + ",)}"), "which no array"),
        (header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': (0, {2**61})}}"), "which no array has"),
        (header("{'descr': '|S0', 'fortran_order': False, 'shape': (1000000,)}"), "1,000,000 words of no"),
        (header("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000,)}"), "1,000,000 words of no"),
    ],
)
def test_odd_arrays_are_refused_in_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    for read in (
        lambda: NpzArrays(archive(tmp_path / "a.npz", content))["a"],
        lambda: read_npy(written(tmp_path / "a.npy", content)),
    ):
        with pytest.raises(FormatError, match=told) as caught:
            read()
        assert "\n" not in str(caught.value)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_what_nobody_asks_for_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", small=np.arange(3), huge=np.zeros(4_000_000))
    monkeypatch.setenv("WEFT_READ_LIMIT", "1MB")
    read = NpzArrays(tmp_path / "a.npz")
    assert read["small"].tolist() == [0, 1, 2]
    with pytest.raises(FormatError, match=r"huge would take 30\.5 MiB of memory.*WEFT_READ_LIMIT=31MiB"):
        read["huge"]


def test_member_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    out: Any = io.BytesIO()
    np.savez(out, a=np.arange(1000))
    content = bytearray(out.getvalue())
    content[600] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.npz: a: truncated or damaged \(Bad CRC"):
        NpzArrays(tmp_path / "a.npz")["a"]


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as made:
        made.writestr("a.npy", b"")
        made.writestr("a", b"")
    with pytest.raises(FormatError, match="two arrays of one name"):
        NpzArrays(tmp_path / "a.npz")


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", VALUES["numbers"])
    numpys, inside, most = arrays._HEADERS[1, 0], [], []

    def watched(file: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return numpys(file)

    monkeypatch.setitem(arrays._HEADERS, (1, 0), watched)
    threads = [threading.Thread(target=read_npy, args=(tmp_path / "a.npy",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


@pytest.mark.parametrize("shape", ["(True,)", "(False, 3)"])
def test_sizes_that_are_no_whole_numbers_are_refused(tmp_path: Path, shape: str) -> None:
    np.save(tmp_path / "a.npy", np.ones(1))
    raw = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(raw.replace(b"(1,), }" + b" " * 8, f"{shape}, }}".encode().ljust(15)))
    with pytest.raises(FormatError, match=r"a\.npy: says it has the shape"):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("number", [0xD800, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", "<>")
def test_words_of_numbers_that_are_no_characters_are_refused(tmp_path: Path, number: int, order: str) -> None:
    words = np.array([ord("a"), ord("b"), number, 0], f"{order}u4").view(f"{order}U2")
    np.save(tmp_path / "a.npy", words)
    np.savez(tmp_path / "a.npz", words=words, others=np.array(["é", "\U0010ffff"]))
    for read in (lambda: read_npy(tmp_path / "a.npy"), lambda: NpzArrays(tmp_path / "a.npz")["words"]):
        with pytest.raises(FormatError, match="are no characters"):
            read()
    assert NpzArrays(tmp_path / "a.npz")["others"].tolist() == ["é", "\U0010ffff"]
