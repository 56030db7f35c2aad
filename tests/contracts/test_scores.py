"""Every score under every loss: gradients are those of small differences, in float64."""

import pytest
import torch
from torch import Tensor

from weft.tasks.pair_loss import PAIR_LOSSES, pair_loss
from weft.tasks.penalty import Penalty
from weft.tasks.scores import Scorer, make_scorer, scorers

WIDTH, RELATION = 4, torch.tensor([1, 0, 1])
GENERATOR = torch.Generator().manual_seed(0)
SRC, DST, DRAWN = (
    torch.randn(count, WIDTH, generator=GENERATOR, dtype=torch.float64, requires_grad=True)
    for count in (3, 3, 2)
)
# No gradient goes through the weights of self-adversarial negatives, and differences know no such thing.
OPTIONS = {"self_adversarial": {"temperature": 0.0}, "margin": {"margin": 9.0}}


def made(name: str) -> Scorer:
    torch.manual_seed(0)
    turned = {} if name in ("dot", "cosine", "mlp") else {"reciprocal": True}
    return make_scorer({"name": name, **turned}, WIDTH, num_relations=2).double()


@pytest.mark.parametrize("loss", PAIR_LOSSES)
@pytest.mark.parametrize("name", scorers.names())
def test_gradients_are_those_of_small_differences(name: str, loss: str) -> None:
    scorer, each = made(name), pair_loss(loss, **OPTIONS.get(loss, {})).each

    def lost(src: Tensor, dst: Tensor, drawn: Tensor, *weights: Tensor) -> Tensor:
        sides = []
        for side, one in (("dst", src), ("src", dst)):
            true = scorer(src, dst, RELATION, side=side)
            outputs = torch.cat([true[:, None], scorer.against(one, drawn, RELATION, side=side)], 1)
            penalty = Penalty("n3", 0.1).each(scorer, src, dst, RELATION, side=side)
            sides.append(each(outputs, penalty))
        return torch.cat(sides)

    assert torch.autograd.gradcheck(lost, (SRC, DST, DRAWN, *scorer.parameters()), fast_mode=True)
