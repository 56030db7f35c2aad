"""A plan of rows and hubs gives the same bits whether or not it asks how many edges there are."""

import pytest
import torch
from kernel_checks import csr, values
from triton_checks import on_triton

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize("num_edges", [0, 5, 60])
@pytest.mark.usefixtures("small_hubs")
def test_a_plan_that_asks_nobody_gives_the_same_bits(num_edges: int) -> None:
    from weft.kernels.triton import plan
    from weft.kernels.triton.spmm import spmm

    indptr, indices = csr(7, 9, num_edges)
    x, scale = values(7, 3), values(9)
    rest = (True, False, None, None, None)
    found = spmm(indptr, indices, None, x, None, None, scale, *rest)
    again = indptr.clone()
    plan.bounded(again, num_edges + 20)  # room for edges that are not there
    padded = torch.cat([indices, indices.new_zeros(20)])
    assert torch.equal(spmm(again, padded, None, x, None, None, scale, *rest), found)
