"""Scores of attention, taken apart."""

import torch

from weft.graph.message.scores import Additive, DotScore, GATv2Score, parts_of
from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2


def test_a_score_is_its_kind_both_sides_what_is_learned_and_its_slope_or_scale() -> None:
    u, v, a = torch.ones(3, 2), torch.ones(2, 2), torch.ones(2)
    assert parts_of(Additive(u, v, 0.1)) == (ADDITIVE, u, v, None, 0.1)
    assert parts_of(GATv2Score(u, v, a, 0.3)) == (GATV2, u, v, a, 0.3)
    assert parts_of(DotScore(u, v, 0.5)) == (DOT, u, v, None, 0.5)
