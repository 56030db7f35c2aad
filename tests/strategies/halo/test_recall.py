"""What was brought for a tensor is given again while the tensor is the same."""

import torch

from weft.strategies.halo.recall import Recall


def test_rows_are_found_for_the_very_same_tensor_unchanged() -> None:
    recall, h, rows = Recall(), torch.ones(2), torch.zeros(3)
    assert recall.find(h) is None
    assert recall.keep(h, rows) is rows
    assert recall.find(h) is rows
    assert recall.find(torch.ones(2)) is None, "an equal one is another"
    h += 1
    assert recall.find(h) is None, "it changed"
    recall.keep(h, rows)
    recall.clear()
    assert recall.find(h) is None


def test_rows_without_a_gradient_are_not_given_to_who_needs_one() -> None:
    recall, h = Recall(), torch.ones(2, requires_grad=True)
    with torch.no_grad():
        recall.keep(h, torch.zeros(3))
        assert recall.find(h) is not None
    assert recall.find(h) is None


def test_the_last_two_are_kept_and_a_tensor_is_brought_once() -> None:
    recall, brought = Recall(), []
    tensors = [torch.ones(1) for _ in range(3)]

    def bring(h: torch.Tensor) -> torch.Tensor:
        brought.append(h)
        return h + 1

    for h in (*tensors, tensors[2], tensors[1]):
        recall(h, bring)
    assert len(brought) == 3
    assert recall.find(tensors[0]) is None
