"""A matrix and a step on the source's end."""

import torch

from weft.tasks.scores import make_scorer


def test_the_step_is_added_before_rows_are_compared() -> None:
    scorer = make_scorer("affine", 2)
    with torch.no_grad():
        scorer.get_parameter("weight").copy_(torch.tensor([[[0.0, 1.0], [2.0, 0.0]]]))
        scorer.get_parameter("bias").copy_(torch.tensor([[10.0, 20.0]]))
    src, dst = torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 100.0]])
    assert scorer(src, dst).tolist() == [16.0 + 2100.0]  # (6 + 10, 1 + 20)
    assert scorer.against(dst, src, side="src").tolist() == [[2116.0]]
