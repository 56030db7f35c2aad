"""The features of operators: products, edges and their values, bytes by index and otherwise."""

import torch

from weft import kernels
from weft.plan.rehearse.watch import OperatorWatch
from weft.plan.rehearse.work import CountedWork


def counted(work: object) -> CountedWork:
    with OperatorWatch() as watch:
        work()  # type: ignore[operator]
    return watch.take_phases()["other"]


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
