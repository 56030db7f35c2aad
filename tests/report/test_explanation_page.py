"""The page of explained messages: both pictures, all numbers, and the reason where nothing is compiled."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.train.model import build_model


class Net(nn.Module):
    """One message that is compiled and one that draws random numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(2 * width, 3)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        def gated(there: Tensor, here: Tensor) -> Tensor:
            return self.both(torch.cat([there, here], 1)).tanh()  # type: ignore[no-any-return]

        h = blocks[0].propagate(gated, src=(x,), dst=(x,))
        return blocks[1].propagate(lambda there: there * torch.rand(()), src=(h,), dst=())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=300)


def test_a_page_shows_each_message_before_and_after(tmp_path: Path, graph: weft.Graph) -> None:
    explained = weft.explain(Net(graph.x.shape[1]), graph)
    page = weft.report.write_explanation(explained, tmp_path / "messages.html", title="a <b>").read_text()
    assert page.count('<svg class="flow"') == 2, "before and after of one, the other cannot be recorded"
    assert "gather source" in page
    assert "in kernel 1" in page
    assert "not compiled: it draws random numbers" in page
    assert "a &lt;b&gt;" in page
    assert "&lt;lambda&gt;" in page
    assert "default-src 'none'" in page


def test_a_model_without_messages_has_a_page_that_says_so(tmp_path: Path, graph: weft.Graph) -> None:
    empty = weft.explain(build_model(graph, "gcn", {"hidden": 8}), graph)
    page = weft.report.write_explanation(empty, tmp_path / "none.html").read_text()
    assert "no layer of this model calls block.propagate" in page


def test_a_file_that_is_no_page_is_left_alone(tmp_path: Path, graph: weft.Graph) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(weft.InputError, match=r"is no page"):
        weft.report.write_explanation(weft.explain(Net(graph.x.shape[1]), graph), tmp_path / "mine.txt")
