"""The angle between rows."""

import torch
import torch.nn.functional as F

from weft.tasks.scores import make_scorer


def test_a_row_of_zeros_has_no_direction_and_a_gradient_of_the_size_of_others() -> None:
    other = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    src = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    score = make_scorer("cosine", 2)(src, other)
    assert score.tolist() == [0.0]
    (gradient,) = torch.autograd.grad(score.sum(), src)
    torch.testing.assert_close(gradient, F.normalize(other, dim=-1))
