"""Arrays that lie in files are told from those in memory, and from those whose file has been replaced."""

from pathlib import Path

import numpy as np

from weft import format
from weft.reading.mapped import file_of, read_between


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
