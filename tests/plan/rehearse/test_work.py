"""The features of operators: products, edges and their values, bytes by index and otherwise."""

import torch

from weft import kernels
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
