"""What crosses the network for a message: the narrowest values, with the bytes of a step."""

from typing import Any

import pytest
from torch import Tensor, nn

import weft
from weft.cli.main import main
from weft.train.travel import Crossed


class Attended(nn.Module):
    """A message that reads one number per head and 8 values of rows that are 64 wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.map = nn.Linear(width, 64), nn.Linear(64, 8)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        def message(there: Tensor, here: Tensor) -> Tensor:
            return self.map(there).tanh() * self.map(here).sigmoid()  # type: ignore[no-any-return]

        h = self.first(x)
        return blocks[0].propagate(message, src=(h,), dst=(h,))  # type: ignore[no-any-return]


class Raw(nn.Module):
    """A message of the model's input as it is."""

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return blocks[0].propagate(lambda there, here: (there - here).abs(), src=(x,), dst=(x,))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=300)


def test_transformed_rows_travel_where_they_are_narrower(graph: weft.Graph) -> None:
    explained = weft.explain(Attended(graph.x.shape[1]), graph, workers=3)
    ((crossed,),) = [each.crossed for each in explained.messages]
    assert (crossed.shape, crossed.row_bytes, crossed.gradient) == ((8,), 32, True)
    assert 0 < crossed.rows <= 2 * graph.num_nodes
    assert crossed.step_bytes == crossed.rows * 32 * 2
    assert "a step, there and as gradients back" in str(explained)
    assert explained.to_dict()["workers"] == 3


def test_inputs_of_the_model_are_fetched_once(graph: weft.Graph) -> None:
    ((crossed,),) = [each.crossed for each in weft.explain(Raw(), graph, workers=2).messages]
    assert crossed.once
    assert crossed.step_bytes == 0
    assert "fetched once" in str(crossed)


def test_one_process_sends_nothing(graph: weft.Graph) -> None:
    assert [each.crossed for each in weft.explain(Raw(), graph).messages] == [()]


def test_words_say_the_ways() -> None:
    alone = Crossed("mm", (2, 4), 32, gradient=False, once=False, rows=10)
    assert str(alone) == "mm, 2x4 wide, 32 bytes a row, 10 rows: 320 bytes a step, one way"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--workers", "4", "--set", "strategy.name=grid"], "halo and sequential"),
        (["--workers", "0"], "--workers 0: expected"),
        (["--workers", "500", "--set", "data.nodes=100"], "too few for 500 parts"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "edgeconv", *given]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_parts_of_a_recipe_are_those_that_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["edgeconv", "--workers", "2", "--set", "data.nodes=200", "--set", "strategy.partitioner=hash"]
    assert main(["explain", *given]) == 0
    assert "crosses: " in capsys.readouterr().out
