"""Safetensors files that others wrote: tensors, or one line."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from weft.errors import FormatError
from weft.reading.tensors import expect_columns, load_tensors

COLUMNS = {"src": torch.arange(3), "y": torch.ones(3, 2)}


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(save(COLUMNS))
    found = load_tensors(tmp_path / "a.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in COLUMNS.items()
    }


@pytest.mark.parametrize("damage", [slice(0, 40), slice(0, -1), slice(1, None), slice(0, 0)])
def test_a_file_that_is_cut_is_one_line(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(save(COLUMNS)[damage])
    with pytest.raises(FormatError, match=r"a\.safetensors: truncated or damaged") as caught:
        load_tensors(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_absent_or_larger_than_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match="no such file"):
        load_tensors(tmp_path / "none")
    (tmp_path / "a").write_bytes(save({"x": torch.zeros(1000)}))
    monkeypatch.setenv("WEFT_READ_LIMIT", "1KiB")
    with pytest.raises(FormatError, match="may be read"):
        load_tensors(tmp_path / "a")


@pytest.mark.parametrize(
    "odd",
    [
        {"y": torch.ones(2)},
        {"y": torch.tensor(1.0)},
        {"src": torch.ones(3)},
        {"src": torch.ones(3, 1).long()},
    ],
)
def test_columns_that_do_not_fit_are_named(odd: dict[str, torch.Tensor]) -> None:
    expect_columns(COLUMNS, Path("p"), whole=("src", "dst"))
    with pytest.raises(FormatError, match=r"p: damaged, columns that do not fit together: src \["):
        expect_columns({**COLUMNS, **odd}, Path("p"), whole=("src", "dst"))
