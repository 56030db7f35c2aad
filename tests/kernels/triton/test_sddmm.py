"""A value for every edge by Triton, against the reference."""

import pytest
from kernel_checks import compare, csr, values
from triton_checks import on_triton

from weft import kernels

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize("op", ["dot", "add", "sub", "mul"])
@pytest.mark.usefixtures("small_hubs")
def test_a_value_for_every_edge(op: str) -> None:
    indptr, indices = csr(5, 4, 30)
    shape = (3, 5) if op == "dot" else (33,)
    compare(lambda a, b: kernels.sddmm(indptr, indices, a, b, op), [values(5, *shape), values(4, *shape)])
