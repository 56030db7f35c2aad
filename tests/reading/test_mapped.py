"""Arrays that lie in files are told from those in memory, and from those whose file has been replaced."""

import os
from pathlib import Path

import numpy as np

from weft import format
from weft.reading.mapped import file_of, map_values, read_between


def test_a_mapped_array_is_found_in_its_file(tmp_path: Path) -> None:
    format.write_directory(tmp_path / "a", {"ids": np.arange(100, dtype=np.int32)}, {})
    ids = format.read_directory(tmp_path / "a")[0]["ids"]
    found = file_of(ids.view(np.ndarray))
    assert found is not None
    assert np.fromfile(found.path, np.int32, offset=found.offset).tolist() == list(range(100))
    assert read_between(ids, 90, 95).tolist() == [90, 91, 92, 93, 94]
    assert file_of(ids[10:]) is None
    assert file_of(ids[:10]) is None
    assert file_of(np.arange(100)) is None


def test_a_file_that_was_replaced_is_not_taken_for_the_array(tmp_path: Path) -> None:
    format.write_directory(tmp_path / "a", {"ids": np.arange(100)}, {})
    ids = format.read_directory(tmp_path / "a")[0]["ids"]
    format.write_directory(tmp_path / "a", {"ids": np.arange(100) + 1}, {}, overwrite=True)
    assert file_of(ids) is None
    assert read_between(ids, 0, 2).tolist() == [0, 1]


def test_values_are_mapped_from_any_place_and_changes_stay_in_memory(tmp_path: Path) -> None:
    written = np.arange(12, dtype=np.float32).reshape(3, 4)
    with open(tmp_path / "a", "wb") as file:
        file.write(b"head of seven"[:7])
        file.write(written.tobytes())
    held = map_values(tmp_path / "a", np.float32, (3, 4), 7)
    assert held.tolist() == written.tolist()
    assert (held.offset, held.filename, held.flags.writeable) == (7, (tmp_path / "a").resolve(), True)
    held[0, 0] = 99
    assert map_values(tmp_path / "a", np.float32, (4, 3), 7, "F").T.tolist() == written.tolist()


def test_a_file_larger_than_memory_is_mapped(tmp_path: Path) -> None:
    """With holes, so that it takes no room. The system may refuse to set copies of all pages aside."""
    size = 8 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with open(tmp_path / "a", "wb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(np.float32(7).tobytes())
    held = map_values(tmp_path / "a", np.float32, (size // 4,))
    held[0] = 1
    assert (float(held[0]), float(held[-1])) == (1, 7)
    entry = {"file": "a.npy", "dtype": "<f4", "shape": [size // 4], "bytes": size + 128}
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (size // 4,)}
        )
        file.truncate(size + 128)
    assert format.read_array(tmp_path, "a", entry).shape == (size // 4,)
