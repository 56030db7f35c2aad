"""What is counted while operators run: bytes held, their peak, phases, and numbers of what has none."""

import torch

from weft.plan.rehearse.fakes import fake_mode
from weft.plan.rehearse.watch import OperatorWatch


def test_bytes_are_held_as_long_as_tensors_live_and_views_count_once() -> None:
    with OperatorWatch() as watch:
        x = torch.zeros(1000)
        y = x.view(10, 100)
        z = x + 1
        assert watch.held == 8000
        del z
        assert watch.held == 4000
        del x, y
        assert watch.held == 0
    assert watch.peak == 8000


def test_tensors_without_values_take_bytes_answer_one_and_go_by_masks() -> None:
    mode = fake_mode()
    x = mode.from_tensor(torch.zeros(6, 4))
    with OperatorWatch() as watch:
        assert float((x * 2).sum()) == 1.0
        mask = torch.tensor([True, False, True, False, False, False])
        assert list(x[mask].shape) == [2, 4]
        x[mask] = 0.0
        kept = x + 1
        assert watch.held >= 96
        assert list(kept.shape) == [6, 4]


def test_work_is_taken_once() -> None:
    with OperatorWatch() as watch:
        torch.ones(2, 3) @ torch.ones(3, 5)
        first = watch.take()
        torch.ones(4) + 1
    assert (first.products, first.calls) == (30, 3)
    assert (watch.take().calls, watch.take().calls) == (2, 0)


def test_what_has_no_values_has_none_that_is_nan() -> None:
    x = fake_mode().from_tensor(torch.zeros(6, 4))
    with OperatorWatch():
        assert int(x.isnan().sum()) == 0
        assert not bool((x + x).isnan().any())


def test_a_mask_without_values_names_every_place() -> None:
    x = fake_mode().from_tensor(torch.zeros(6, 4))
    with OperatorWatch():
        assert (x[:, 0] > 0).nonzero().tolist() == [[place] for place in range(6)]
        assert list(x[x[:, 0] > 0].shape) == [6, 4]
