"""Softmax over the edges of a row by Triton, against the reference."""

import pytest
import torch
from kernel_checks import DEVICE, compare, csr, values
from triton_checks import on_triton

from weft import kernels

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.usefixtures("small_hubs")
def test_softmax_over_the_edges_of_a_row() -> None:
    indptr, _ = csr(5, 4, 30)
    compare(lambda scores: kernels.edge_softmax(indptr, scores), [values(30, 3)])
    masked = torch.full((30,), float("-inf"), device=DEVICE)
    assert kernels.edge_softmax(indptr, masked).eq(0).all()
