"""Stages: 1-D and 2-D take the steps of one process, move the words they should, and never hold all rows."""

import pytest
import staged_jobs
from halo_jobs import NODES
from ranks import run_ranks

import weft
from weft.comm.group import Group
from weft.errors import RecipeError
from weft.strategies.merged.staged import Staged


def check(size: int, found: dict) -> None:  # type: ignore[type-arg]
    assert found["wrong"] == []
    assert found["words"] == {
        form: {"found": words["due"], "due": words["due"]} for form, words in found["words"].items()
    }
    for staged, gathered in found["held"].values():
        # Rows n/P of full width, a few more where parts and columns are uneven; a gather has all of them.
        assert staged <= NODES / size * 1.5
        assert gathered >= NODES
    for said in found["refused"]:
        assert "strategy 'staged' gives layers sums and means over neighbours" in said


def test_one_rank_takes_the_steps_of_one_process() -> None:
    check(1, staged_jobs.promises(Group.alone()))


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_take_the_steps_of_one_process_and_move_their_words(size: int) -> None:
    for found in run_ranks(size, staged_jobs.promises):
        assert list(found["words"]) == (["1d", "2d"] if size == 4 else ["1d"])
        check(size, found)


def test_two_dimensions_need_a_square_number_of_workers() -> None:
    assert Staged.shape({}, 6) == (6, 1)
    assert Staged.shape({"form": "2d"}, 9) == (3, 3)
    assert Staged.layouts(9) == [{"form": "1d"}, {"form": "2d"}]
    assert Staged.layouts(6) == [{"form": "1d"}]
    with pytest.raises(RecipeError, match=r"strategy\.form: '2d' needs a square number of workers .* are 6"):
        Staged.arrangement({"form": "2d"}, 6)


def test_a_recipe_trains_in_stages() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=90, degree=6, classes=3, features=8, seed=1)
    staged = weft.train(graph, "gcn", strategy="staged", epochs=3, hidden=8)
    single = weft.train(graph, "gcn", epochs=3, hidden=8)
    assert staged.loss == pytest.approx(single.loss, rel=1e-5)
