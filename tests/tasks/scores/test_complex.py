"""Products of complex numbers whose real parts come first."""

from functools import partial

import pytest
import torch

from weft.tasks.scores import make_scorer
from weft.tasks.scores.complex import complex_product

ONE, TURN = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])  # 1 + 2i and 3 - i


def test_a_product_is_that_of_complex_numbers() -> None:
    assert complex_product(ONE, TURN, conjugate=False).tolist() == [5.0, 5.0]
    assert complex_product(ONE, TURN, conjugate=True).tolist() == [1.0, 7.0]


def test_a_relation_may_hold_one_way_alone() -> None:
    scorer = make_scorer("complex", 2)
    with torch.no_grad():
        scorer.get_parameter("weight").copy_(torch.tensor([[0.0, 1.0]]))  # i
    src, dst = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert scorer(src, dst).tolist() == [1.0]
    assert scorer(dst, src).tolist() == [-1.0]


def test_weights_of_relations_are_those_of_the_end_that_is_given() -> None:
    scorer = make_scorer({"name": "complex", "reciprocal": True}, 2, num_relations=1)
    with torch.no_grad():
        scorer.get_parameter("weight").copy_(torch.tensor([[0.0, 1.0], [3.0, 4.0]]))
    for end, expected in (("src", [[0.0, 1.0]]), ("dst", [[3.0, 4.0]])):
        found = scorer.relation_numbers(end)
        assert found is not None
        assert found.tolist() == expected


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize(("rows", "weight"), [((3, 6), (3, 6)), ((3, 6), (1, 6)), ((2, 3, 6), (2, 1, 6))])
def test_gradients_of_any_order_are_those_of_the_formula(
    conjugate: bool, rows: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(3)
    held = [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in (rows, weight)]
    held = [each.requires_grad_() for each in held]
    turned = [torch.complex(*each.chunk(2, -1)) for each in held]
    expected = turned[0] * (turned[1].conj() if conjugate else turned[1])
    found = complex_product(*held, conjugate=conjugate)
    torch.testing.assert_close(found, torch.cat([expected.real, expected.imag], -1))
    product = partial(complex_product, conjugate=conjugate)
    assert torch.autograd.gradcheck(product, held)
    assert torch.autograd.gradgradcheck(product, held)
