"""Reading other people's files: values that are right, and one line for each way a file can be bad."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from weft.datasets.foreign_files import mask_of, naming, read_table, read_words, whole_numbers
from weft.errors import FormatError, GraphError


def test_table_of_numbers_is_read_with_gaps_as_nan(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"1,2.5\n3,\n-4,nan\n"))
    np.testing.assert_array_equal(read_table(path), [[1, 2.5], [3, np.nan], [-4, np.nan]])


def test_column_of_large_whole_numbers_keeps_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("9007199254740993\n1\n")
    assert read_table(path).tolist() == [[9007199254740993], [1]]


@pytest.mark.parametrize(
    "content", [b"", gzip.compress(b"1,2\n3,4\n")[:-9], b"not compressed"], ids=["empty", "cut", "plain"]
)
def test_damaged_table_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"t\.csv\.gz: ") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_table_that_unpacks_to_more_than_may_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 200_000))  # 0.8 MB of text, 400,000 values
    monkeypatch.setenv("WEFT_READ_LIMIT", "4MB")
    with pytest.raises(FormatError, match=r"t\.csv\.gz: .* may be read; .*WEFT_READ_LIMIT"):
        read_table(path)
    monkeypatch.setenv("WEFT_READ_LIMIT", "16MB")
    assert len(read_table(path)) == 200_000


def test_list_of_types_that_is_no_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.csv.gz").write_bytes(gzip.compress(b"a" * 2_000_000))
    with pytest.raises(FormatError, match=r"w\.csv\.gz: expected a list of types"):
        read_words(tmp_path / "w.csv.gz")


def test_damaged_words_are_named(tmp_path: Path) -> None:
    (tmp_path / "w.csv.gz").write_bytes(gzip.compress(b"a,b\n")[:-9])
    with pytest.raises(FormatError, match=r"w\.csv\.gz: truncated"):
        read_words(tmp_path / "w.csv.gz")


def test_mask_holds_the_listed_nodes() -> None:
    assert mask_of(np.array([2.0, 0.0]), 3, Path("s.csv")).tolist() == [True, False, True]
    with pytest.raises(FormatError, match=r"s\.csv: node ids must lie in 0 … 2, found -1"):
        mask_of(np.array([0, -1]), 3, Path("s.csv"))


def test_fractions_are_not_whole_numbers() -> None:
    for wrong in (0.5, np.nan, np.inf):
        with pytest.raises(FormatError, match=r"f\.csv: expected whole numbers for ids"):
            whole_numbers(np.array([1.0, wrong]), Path("f.csv"), "ids")


def test_wrong_graph_is_named_by_its_file() -> None:
    with pytest.raises(GraphError, match=r"^g\.npz: x holds NaN$"), naming(Path("g.npz")):
        raise GraphError("x holds NaN")
