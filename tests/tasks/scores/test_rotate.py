"""Rotations keep lengths, and turn back."""

import math

import torch

from weft.tasks.scores import make_scorer

ROW = torch.tensor([[3.0, 4.0]])  # 3 + 4i


def test_a_quarter_turn_and_back() -> None:
    scorer = make_scorer({"name": "rotate", "offset": 9.0}, 2)
    with torch.no_grad():
        scorer.get_parameter("angle").fill_(math.pi / 2)
    turned = torch.tensor([[-4.0, 3.0]])
    torch.testing.assert_close(scorer.query(ROW, None, "src"), turned)
    torch.testing.assert_close(scorer.query(turned, None, "dst"), ROW)
    torch.testing.assert_close(scorer(ROW, turned), torch.tensor([9.0]))


def test_no_penalty_makes_a_rotation_smaller() -> None:
    assert make_scorer("rotate", 2).relation_numbers("src") is None
