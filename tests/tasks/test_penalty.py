"""What keeps rows small: powers of the numbers of drawn pairs and their relations."""

from typing import Any

import pytest
import torch

from weft.errors import RecipeError
from weft.tasks.penalty import Penalty, check_penalty
from weft.tasks.scores import make_scorer

SRC, DST = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 0.0]])
RELATION = torch.tensor([1, 0])


def scored(name: str, weight: list[list[float]], **options: Any) -> Any:
    scorer = make_scorer({"name": name, **options}, 2, num_relations=2)
    with torch.no_grad():
        scorer.get_parameter("weight").copy_(torch.tensor(weight))
    return scorer


def test_third_powers_are_those_of_moduli() -> None:
    scorer = scored("complex", [[0.0, 1.0], [1.0, 0.0]])
    found = Penalty("n3", 0.5).each(scorer, SRC, DST, RELATION)
    assert found.tolist() == [0.5 * (125 + 8 + 1), 0.5 * (1 + 0 + 1)]


def test_squares_are_those_of_numbers() -> None:
    scorer = scored("distmult", [[1.0, 1.0], [2.0, 3.0]])
    assert Penalty("l2", 2.0).each(scorer, SRC, DST, RELATION).tolist() == [2 * (25 + 4 + 13), 2 * (1 + 2)]


def test_the_relation_is_the_one_that_answers() -> None:
    scorer = scored("distmult", [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]], reciprocal=True)
    targets = Penalty("l2", 1.0).each(scorer, SRC, DST, RELATION, side="dst")
    sources = Penalty("l2", 1.0).each(scorer, SRC, DST, RELATION, side="src")
    assert targets.tolist() == [29 + 4, 1 + 1]
    assert sources.tolist() == [29 + 16, 1 + 9]


def test_scores_without_weights_of_relations_have_that_of_rows() -> None:
    assert Penalty("l2", 1.0).each(make_scorer("dot", 2), SRC, DST).tolist() == [29.0, 1.0]
    assert Penalty("n3", 1.0).each(make_scorer("rotate", 2), SRC, DST).tolist() == [133.0, 1.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("l1", "task.regularise.name.*'n3', 'l2'"),
        ({"weight": 0.0}, "task.regularise.weight.*> 0"),
        ({"power": 3}, "task.regularise.power"),
    ],
)
def test_what_cannot_be_is_one_line(given: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_penalty(given)
