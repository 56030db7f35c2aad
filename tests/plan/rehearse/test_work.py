"""The features of operators: products, edges and their values, bytes by index and otherwise."""

import pytest
import torch

from weft import kernels
from weft.kernels.quantise import dequantise, quantise
from weft.plan.rehearse.fakes import fake_mode
from weft.plan.rehearse.watch import OperatorWatch
from weft.plan.rehearse.work import CountedWork


def counted(work: object) -> CountedWork:
    with OperatorWatch() as watch:
        work()  # type: ignore[operator]
    return watch.take()


def test_each_kind_of_operator_has_its_count() -> None:
    x, index = torch.ones(8, 4), torch.tensor([1, 2, 3])
    assert counted(lambda: x @ torch.ones(4, 2)).products == 64
    assert counted(lambda: x[index]).gathered == 2 * 3 * 4 * 4
    assert counted(lambda: x + 1).touched == 2 * 8 * 4 * 4
    assert counted(lambda: x.view(4, 8)) == CountedWork()


def test_kernels_count_their_edges_times_the_width() -> None:
    indptr, indices = torch.tensor([0, 2, 5]), torch.tensor([0, 1, 0, 1, 1], dtype=torch.int32)
    found = counted(lambda: kernels.spmm(indptr, indices, torch.ones(2, 6)))
    assert (found.edges, found.edge_values) == (5, 30)


def test_work_adds_up() -> None:
    total = CountedWork(calls=1, edges=2)
    total.add(CountedWork(calls=2, touched=3))
    assert total.to_dict() == {**CountedWork().to_dict(), "calls": 3, "edges": 2, "touched": 3}


def test_attention_counts_its_weights_and_its_rows_and_dropout_its_values() -> None:
    indptr, indices = torch.tensor([0, 2, 5]), torch.tensor([0, 1, 0, 1, 1], dtype=torch.int32)
    scores, rows = torch.ones(2, 3), torch.ones(2, 3, 4)
    found = counted(lambda: kernels.attention(indptr, indices, scores, scores, rows))
    assert (found.edges, found.edge_values) == (5, 5 * 12)
    assert (found.attended, found.attending) == (5 * 3, 2 * 3)
    ids, clock = torch.arange(2), torch.zeros(3, dtype=torch.int64)
    dropped = counted(lambda: kernels.dropout(torch.ones(2, 6), ids, 0.5, clock=clock))
    assert (dropped.masked, dropped.edges, dropped.edge_values) == (12, 0, 0)


def test_operators_on_many_values_are_divided_and_large_tensors_have_fresh_pages() -> None:
    small, many, large = torch.ones(1 << 14), torch.ones(1 << 15), torch.ones(1 << 18)
    found = [counted(lambda each=each: each + 1) for each in (small, many, large)]
    assert [each.divided for each in found] == [0, 1, 1]
    assert [each.fresh for each in found] == [0, 0, 1 << 20]
    assert counted(lambda: large.add_(1)).fresh == 0  # in place
    assert counted(lambda: large.view(2, -1)) == CountedWork()


def test_work_in_bfloat16_is_counted_apart() -> None:
    indptr, indices = torch.tensor([0, 2, 5]), torch.tensor([0, 1, 0, 1, 1], dtype=torch.int32)
    found = counted(lambda: kernels.spmm(indptr, indices, torch.ones(2, 6).bfloat16()))
    assert (found.edge_values, found.half_values) == (0, 30)
    half = torch.ones(8, 4).bfloat16(), torch.ones(4, 2).bfloat16()
    found = counted(lambda: half[0] @ half[1])
    assert (found.products, found.half_products) == (0, 64)


def test_what_no_cache_holds_is_counted_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.plan.rehearse.work.FAR", 1 << 12)
    indptr, indices = torch.tensor([0, 2, 5]), torch.tensor([0, 1, 0, 1, 1], dtype=torch.int32)
    small, large = torch.ones(4, 64), torch.ones(1024)
    assert counted(lambda: small + 1).far == 0
    assert counted(lambda: large + 1).far == 2 * 4096
    sums = counted(lambda: kernels.spmm(indptr, indices, torch.ones(64, 64)))
    assert sums.far == sums.touched + 4 * sums.edge_values  # rows are read again for every edge


def test_codes_without_values_are_counted_as_if_they_were_made() -> None:
    with fake_mode():
        rows, ids = torch.ones(5, 6), torch.arange(5)
    clock = torch.zeros(3, dtype=torch.int64)

    def there_and_back() -> None:
        dequantise(quantise(rows, ids, 8, clock=clock), 6, 8, torch.float32)

    assert counted(there_and_back).coded == 2 * 5 * 6
