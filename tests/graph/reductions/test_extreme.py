"""The largest and the smallest value: ties, rows without edges, NaN, and counts that 16 bits would round."""

import pytest
import torch

from weft.graph.reductions import ByRow, Contribution, Running, reduction

COUNTS = torch.tensor([[2], [0], [3], [1]], dtype=torch.int32)


@pytest.mark.parametrize(("name", "sign"), [("max", 1), ("min", -1)])
def test_ties_of_several_contributions_add_their_edges(name: str, sign: int) -> None:
    # The second stands for no edge: its zero is no value.
    values = (sign * torch.tensor([[-5.0], [0.0], [-5.0], [-7.0]])).requires_grad_()
    whole = reduction(name).reduced(ByRow.of(torch.zeros(4).long(), 2), Contribution(values, COUNTS))
    assert whole.value.tolist() == [[-5 * sign], [0]]
    assert whole.beside is not None
    assert whole.beside.tolist() == [[5], [0]]
    whole.value.sum().backward()
    assert values.grad is not None
    assert values.grad.flatten().tolist() == pytest.approx([0.4, 0, 0.6, 0])


def test_counts_are_not_rounded_where_values_have_16_bits() -> None:
    values = torch.ones(2, 1, dtype=torch.bfloat16)
    counts = torch.tensor([[1000], [1]], dtype=torch.int32)
    whole = reduction("max").reduced(ByRow.of(torch.zeros(2).long(), 1), Contribution(values, counts))
    assert whole.beside is not None
    assert whole.beside.tolist() == [[1001]]


def test_not_a_number_beats_every_number_whichever_comes_first() -> None:
    bad, good = torch.tensor([[torch.nan]]), torch.tensor([[9.0]])
    one = torch.ones(1, 1, dtype=torch.int32)
    for order in ((bad, good), (good, bad)):
        running = Running(reduction("max"), 1)
        for value in order:
            running.add(Contribution(value.clone(), one.clone()))
        assert bool(running.whole.value.isnan().all())
        assert running.whole.beside is not None
        assert running.whole.beside.tolist() == [[1]]
