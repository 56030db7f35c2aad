"""Arrays that come some rows at a time: in memory and in a folder they are the same."""

from pathlib import Path

import numpy as np
import pytest
import torch

from weft import format
from weft.graph.parts.gathered import InFolder, InMemory
from weft.reading.mapped import file_of


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool])
def test_rows_in_pieces_are_the_array(tmp_path: Path, dtype: torch.dtype) -> None:
    whole = (torch.arange(20).reshape(10, 2) % 3).to(dtype)
    for place in (InMemory(), InFolder(tmp_path)):
        made = place.array("a", dtype, (10, 2))
        for rows in (whole[:3], whole[3:3], whole[3:]):
            made.append(rows)
        assert torch.equal(made.close(), whole)


def test_rows_that_are_missing_are_noticed(tmp_path: Path) -> None:
    for place in (InMemory(), InFolder(tmp_path)):
        made = place.array("a", torch.int64, (3,))
        made.append(torch.tensor([1, 2]))
        with pytest.raises(AssertionError, match="2 rows of 3"):
            made.close()


def test_a_folder_lists_what_was_made_and_what_was_put(tmp_path: Path) -> None:
    place = InFolder(tmp_path)
    made = place.array("a", torch.int64, (2,))
    made.append(torch.tensor([4, 5]))
    mapped = made.close()
    assert file_of(mapped.numpy()) is not None
    place.put("a", mapped.numpy())  # it is there
    place.put("b", np.zeros((0, 3), np.float32))
    format.seal_directory(tmp_path, {}, arrays=place.entries)
    arrays, _ = format.read_directory(tmp_path)
    assert {name: array.tolist() for name, array in arrays.items()} == {"a": [4, 5], "b": []}
