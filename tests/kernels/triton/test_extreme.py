"""Extremes over edges by Triton: ties share the gradient, NaN beats every number."""

import pytest
import torch
from kernel_checks import DEVICE, compare, csr, values
from triton_checks import on_triton, rows

from weft import kernels
from weft.kernels import reference

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.usefixtures("small_hubs")
def test_extremes_share_the_gradient_among_ties(reduce: str) -> None:
    indptr, indices = csr(5, 4, 30)
    x = values(5, 7)
    compare(lambda x: kernels.spmm(indptr, indices, x.round(), reduce=reduce) + x.sum(), [x])
    value, count = kernels.extreme(indptr, indices, x.round(), reduce)
    wanted = reference.extreme(indptr, indices, x.round(), reduce == "max")
    assert value.equal(wanted[0])
    assert count.equal(wanted[1])


@on_triton
def test_nan_beats_every_number_in_an_extreme() -> None:
    x = torch.tensor([[1.0], [float("nan")], [float("-inf")]], device=DEVICE)
    indptr, indices = rows(0, 2, 3, 3), rows(0, 1, 2)
    value, count = kernels.extreme(indptr, indices, x, "max")
    assert value[0].isnan().all()
    assert value[1:].flatten().tolist() == [float("-inf"), 0.0]
    assert count.flatten().tolist() == [1, 1, 0]
