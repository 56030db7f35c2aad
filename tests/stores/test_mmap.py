"""Rows in a file."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.errors import FormatError, InputError
from weft.graph import Graph
from weft.kernels import native
from weft.stores import MmapStore, mmap

X = torch.randn(3000, 24, generator=torch.Generator().manual_seed(0))
IDS = torch.randint(3000, (5000,), generator=torch.Generator().manual_seed(1))


def test_a_plain_npy_file_is_read_natively_and_without_the_core(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    store = MmapStore(tmp_path / "x.npy")
    assert torch.equal(store.gather(IDS), X[IDS])
    with native.disabled():
        assert torch.equal(store.gather(IDS), X[IDS])


@pytest.mark.parametrize("storage", ["float16", "bfloat16", "int8"])
def test_a_folder_keeps_fewer_bits(tmp_path: Path, storage: str) -> None:
    store = MmapStore.write_rows(tmp_path / "x", X, storage=storage, chunk=700)  # type: ignore[arg-type]
    assert (store.gather(IDS) - X[IDS]).abs().max() < 0.05
    assert store.describe()["storage"] == storage
    assert store.row_bytes == (28 if storage == "int8" else 48)


def test_features_of_a_saved_graph_are_read_from_its_folder(tmp_path: Path) -> None:
    Graph.from_edges([[0, 1], [1, 2]], x=X[:3]).save(tmp_path / "graph")
    store = MmapStore(tmp_path / "graph")
    assert torch.equal(store[:], X[:3])
    with pytest.raises(FormatError, match="reading only"):
        MmapStore(tmp_path / "graph", mode="r+")
    with pytest.raises(FormatError, match="no dense features x of 'paper'"):
        MmapStore(tmp_path / "graph", node_type="paper")


def bytes_from_disk() -> int:
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


def test_reading_some_rows_does_not_read_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((1 << 13, 1024), dtype=np.float32))  # 32 MiB, a page a row
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # out of the system's cache
    store, before = MmapStore(path), bytes_from_disk()
    store.gather(torch.arange(0, 1 << 13, 64))
    assert bytes_from_disk() - before < 2 << 20  # 128 rows lie in 1 MiB of pages


def test_a_store_that_was_not_finished_cannot_be_opened(tmp_path: Path) -> None:
    store = MmapStore.create(tmp_path / "x", (4, 2))
    store.write(torch.tensor([1]), torch.ones(1, 2))
    with pytest.raises(FormatError, match="not finished"):
        MmapStore(tmp_path / "x")
    store.close()
    assert MmapStore(tmp_path / "x")[:].sum() == 2
    with pytest.raises(FormatError, match="exists"):
        MmapStore.create(tmp_path / "x", (4, 2))


def test_what_is_no_store_is_refused_in_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.arange(3))
    (tmp_path / "text.npy").write_text("hello")
    np.save(tmp_path / "cut.npy", X.numpy())
    with open(tmp_path / "cut.npy", "r+b") as file:
        file.truncate(1000)
    for name, message in (
        ("whole.npy", "expected rows of float"),
        ("text.npy", "not in the format it should have"),
        ("cut.npy", "the file holds 1,000"),
        ("nothing", "does not exist"),
    ):
        with pytest.raises(FormatError, match=message):
            MmapStore(tmp_path / name)
    with pytest.raises(InputError, match="mode"):
        MmapStore(tmp_path / "cut.npy", mode="w")  # type: ignore[arg-type]


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    MmapStore.write_rows(tmp_path / "x", X[:5])
    note = tmp_path / "x" / "store.json"
    told = json.loads(note.read_text())
    for change in ({"shape": [6, 24]}, {"shape": [-1]}, {"kept": "Tensor"}, {"version": 2}):
        note.write_text(json.dumps(told | change))
        with pytest.raises(FormatError):
            MmapStore(tmp_path / "x")


def test_a_disk_that_is_too_small_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    for storage in (None, "int8"):
        with pytest.raises(FormatError, match="cannot write"):
            MmapStore.create(tmp_path / "runs" / "x", (1 << 50, 4), storage=storage)  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "kept").touch()
    with pytest.raises(FormatError, match="cannot write"):
        MmapStore.create(tmp_path / "runs" / "x", (1 << 50, 4))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["kept"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="pages are counted in /proc")
def test_pages_of_a_file_are_let_go_once_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as memory of the process, though the system could have them back."""
    np.save(tmp_path / "x.npy", np.ones((1 << 15, 512), dtype=np.float32))  # 64 MiB

    def left() -> int:
        store, before = MmapStore(tmp_path / "x.npy"), mmap._pages_of_files()
        for rows in torch.split(torch.arange(1 << 15), 1 << 12):
            assert float(store.gather(rows).sum()) == 512 << 12
        return mmap._pages_of_files() - before

    assert left() > 60 << 20
    monkeypatch.setattr(mmap, "KEPT", 1 << 20)
    assert left() < 16 << 20


def test_rows_far_beyond_two_to_the_31_are_read_and_written(tmp_path: Path) -> None:
    """In a file with holes, which takes no room; it is larger than memory may be."""
    shape, last = (1 << 28, 128), (1 << 28) - 1  # 2^35 values, 64 GiB
    header = {"descr": "<f2", "fortran_order": False, "shape": shape}
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        file.truncate(start + (1 << 28) * 256)
    store = MmapStore(tmp_path / "x.npy", mode="r+", dtype=torch.float32)
    row = torch.arange(128.0)
    store.write(torch.tensor([last]), row[None])
    again = MmapStore(tmp_path / "x.npy", dtype=torch.float32)
    assert again.gather(torch.tensor([last, 0, last - 1])).tolist() == [
        row.tolist(),
        [0.0] * 128,
        [0.0] * 128,
    ]
    with native.disabled():
        assert torch.equal(again.gather(torch.tensor([last])), row[None])
