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


@pytest.mark.parametrize("parts", [1, 2])
def test_gradients_of_any_order_are_those_of_third_powers(parts: int) -> None:
    rows = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows = rows.requires_grad_()
    scorer = make_scorer("complex" if parts == 2 else "dot", 4).double()
    penalty = Penalty("n3", 0.5)
    assert torch.autograd.gradcheck(lambda h: penalty.of_ends(scorer, h, h), rows)
    assert torch.autograd.gradgradcheck(lambda h: penalty.of_ends(scorer, h, h), rows)


def test_a_number_that_is_zero_has_no_gradient() -> None:
    rows = torch.zeros(2, 2, requires_grad=True)
    Penalty("n3", 1.0).of_ends(make_scorer("complex", 2), rows, rows).sum().backward()
    assert rows.grad is not None
    assert rows.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_weights_of_relations_have_a_gradient_for_each_pair() -> None:
    scorer = scored("distmult", [[1.0, 1.0], [2.0, 3.0]])
    found = Penalty("n3", 1.0).of_relation(scorer, torch.tensor([1, 0, 1]))
    assert found is not None
    found.sum().backward()
    assert found.tolist() == [8 + 27, 2, 8 + 27]
    assert scorer.weight.grad.tolist() == [[3, 3], [2 * 3 * 4, 2 * 3 * 9]]


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
