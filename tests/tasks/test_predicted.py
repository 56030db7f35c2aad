"""What the rows of predictions hold: classes, labels or numbers, by name where names are known."""

import pytest
import torch

pytest.importorskip("pyarrow")

from weft.errors import GraphError
from weft.tasks.predicted import class_columns, label_columns, lists, value_columns

OUTPUTS = torch.tensor([[0.0, 2.0], [3.0, -1.0], [-1.0, -2.0]])


def test_a_class_has_its_name_and_its_probability() -> None:
    found = class_columns(OUTPUTS, ["red", "blue"])
    assert found["prediction"].to_pylist() == ["blue", "red", "red"]
    assert found["probability"].tolist() == pytest.approx(OUTPUTS.softmax(1).amax(1).tolist())
    assert found["output"].to_pylist() == OUTPUTS.tolist()
    assert class_columns(OUTPUTS)["prediction"].to_pylist() == [1, 0, 0]


def test_labels_are_those_likelier_than_not() -> None:
    assert label_columns(OUTPUTS, ["red", "blue"])["prediction"].to_pylist() == [["blue"], ["red"], []]
    assert label_columns(OUTPUTS.abs())["prediction"].to_pylist() == [[1], [0, 1], [0, 1]]


def test_one_number_is_a_number_and_several_are_a_list() -> None:
    assert value_columns(OUTPUTS[:, 1:])["value"].tolist() == [2.0, -1.0, -2.0]
    assert value_columns(OUTPUTS)["value"].to_pylist() == OUTPUTS.tolist()


def test_only_vectors_become_lists() -> None:
    assert lists(OUTPUTS.T).to_pylist() == OUTPUTS.T.tolist()  # not contiguous
    assert lists(torch.zeros(0, 3)).to_pylist() == []
    with pytest.raises(GraphError, match=r"expected rows \[n, width\], got shape \[3\]"):
        lists(torch.zeros(3))
