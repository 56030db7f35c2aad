"""Sums and means over edges by Triton, against the reference, with gradients."""

import pytest
import torch
from kernel_checks import compare, csr, values
from triton_checks import HALF, on_triton

from weft import kernels

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize(
    ("width", "dtype", "index"),
    [
        (1, torch.float32, torch.int32),
        (7, HALF, torch.int64),
        (33, torch.float16, torch.int32),
        (602, torch.float32, torch.int64),
    ],
)
@pytest.mark.usefixtures("small_hubs")
def test_sums_of_any_width_and_type(width: int, dtype: torch.dtype, index: torch.dtype) -> None:
    indptr, indices = csr(5, 6, 40, index=index)
    compare(lambda x: kernels.spmm(indptr, indices, x), [values(5, width, dtype=dtype)])


@on_triton
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.usefixtures("small_hubs")
def test_means_weights_and_scales(heads: int | None) -> None:
    indptr, indices = csr(5, 6, 40)
    weight = values(40) if heads is None else values(40, heads)
    scales = {"src_scale": values(5, seed=1), "dst_scale": values(6, seed=2)}
    run = lambda x, w: kernels.spmm(indptr, indices, x, w, "mean", **scales)  # noqa: E731
    compare(run, [values(5, 3, 5), weight])


@on_triton
def test_views_are_read_in_their_own_order() -> None:
    indptr, indices = csr(6, 4, 20)
    compare(lambda x: kernels.spmm(indptr, indices, x.T), [values(13, 6)])
    compare(lambda x: kernels.spmm(indptr, indices, x[::2, 1:4]), [values(12, 6)])
    x = values(6, 5, grad=True)
    kernels.spmm(indptr, indices, x).sum().backward()  # the gradient of a sum has strides of 0
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == torch.bincount(indices, minlength=6).tolist()


@on_triton
@pytest.mark.usefixtures("small_hubs")
def test_scales_of_hubs_are_read_in_their_own_order() -> None:
    indptr, indices = csr(5, 6, 40)
    strided = (values(10)[::2], values(12, seed=1)[::2])
    expanded = (values(1).expand(5), values(1, seed=1).expand(6))
    for src, dst in (strided, expanded):
        run = lambda x: kernels.spmm(indptr, indices, x, src_scale=src, dst_scale=dst)  # noqa: B023, E731
        compare(run, [values(5, 3)])
    pointers = torch.stack([indptr, indptr], 1)[:, 0]
    compare(lambda x: kernels.spmm(pointers, indices, x, reduce="mean"), [values(5, 3)])


@on_triton
@pytest.mark.usefixtures("nan_memory")
def test_edges_of_no_row_have_a_weight_without_gradient() -> None:
    indptr, indices = csr(5, 6, 30)
    padded = torch.cat([indices, indices.new_zeros(4)])
    weight = values(34, grad=True)
    (grad,) = torch.autograd.grad(kernels.spmm(indptr, padded, values(5, 3), weight).sum(), weight)
    assert grad[:30].isfinite().all()
    assert grad[30:].eq(0).all()
