"""Learned rows: a table by itself, and lent to a run."""

import pytest
import torch

from weft.layers.learned import LearnedRows, rows_of


def made(nodes: range, width: int = 4, seed: int = 0) -> LearnedRows:
    torch.manual_seed(seed)
    return LearnedRows(nodes, width)


def test_rows_are_read_by_global_ids() -> None:
    rows = made(range(10, 15))
    assert torch.equal(rows(torch.tensor([14, 10, 14])), rows.weight[[4, 0, 4]])


def test_a_worker_makes_the_rows_of_its_own_nodes_alone() -> None:
    whole = made(range(10, 200_000))
    own = torch.tensor([3, 10, 12, 90_000, 199_999, 200_004])
    with rows_of(own):
        some = made(range(10, 200_000))
    assert torch.equal(some.weight, whole.weight[own[1:5] - 10])


def test_first_rows_have_unit_variance_over_their_width_and_differ_by_seed() -> None:
    rows = made(range(4_000), 16)
    assert rows.weight.detach().mean().abs() < 0.005
    assert float(rows.weight.detach().square().sum(1).mean()) == pytest.approx(1.0, abs=0.02)
    assert not torch.equal(rows.weight, made(range(4_000), 16, seed=1).weight)
    other = LearnedRows(range(4_000), 16)  # the next of a model
    assert not torch.equal(rows.weight, other.weight)


def test_rows_that_stay_on_the_host_change_their_type_alone() -> None:
    rows = made(range(5))
    rows.on_host = True
    rows.to(device="meta", dtype=torch.float64)
    assert (rows.weight.device.type, rows.weight.dtype) == ("cpu", torch.float64)
    rows.on_host = False
    rows.to(device="meta")
    assert rows.weight.is_meta


def test_a_lent_table_is_no_parameter_and_not_in_the_state() -> None:
    rows = made(range(5))
    before = rows.weight.detach().clone()
    rows.lend(before[2:4], lambda ids, own: torch.full((len(ids), 4), float(own)))
    assert not list(rows.parameters())
    assert not rows.state_dict()
    assert rows(torch.tensor([1]), own=True).tolist() == [[1.0] * 4]
    rows.take_back(before)
    assert list(rows.state_dict()) == ["weight"]
    assert torch.equal(rows(torch.arange(5)), before)
