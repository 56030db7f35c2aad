"""Sparse features against the dense matrix they stand for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph import SparseFeatures
from weft.graph.sparse import product

DENSE = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """Draw a small float64 matrix with many zeros."""
    rows, columns = draw(st.integers(0, 6)), draw(st.integers(1, 6))
    make = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    values = torch.randn(rows, columns, dtype=torch.float64, generator=make)
    return values * (torch.rand(rows, columns, generator=make) < draw(st.sampled_from([0.0, 0.3, 1.0])))


def test_only_non_zeros_are_stored() -> None:
    x = SparseFeatures.from_dense(DENSE)
    assert (x.nnz, tuple(x.shape), len(x), x.dim(), x.requires_grad) == (3, (3, 3), 3, 2, False)
    assert x.indptr.tolist() == [0, 1, 1, 3]
    assert x.indices.tolist() == [1, 0, 2]
    assert x.row_ids.tolist() == [0, 2, 2]
    assert (x.indptr.dtype, x.indices.dtype) == (torch.int64, torch.int32)


def test_repeated_places_add_up() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x = SparseFeatures.from_any(scipy_sparse.coo_matrix(([1, 2], ([0, 0], [1, 1])), shape=(2, 2)))
    assert x.to_dense().tolist() == [[0, 3], [0, 0]]
    assert x.dtype == torch.float32
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (2, 2))
    assert SparseFeatures.from_any(coo).to_dense().tolist() == [[0, 3], [0, 0]]


def test_the_users_matrix_is_left_as_it_is() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    given = scipy_sparse.csr_matrix(([1.0, 2.0], [1, 1], [0, 2, 2]), shape=(2, 2))
    assert SparseFeatures.from_any(given).nnz == 1
    assert given.nnz == 2


def test_a_vector_is_refused() -> None:
    with pytest.raises(GraphError, match=r"must be a matrix \[num_nodes, num_features\], got shape \(3,\)"):
        SparseFeatures.from_any(torch.ones(3).to_sparse())


def test_derived_features_share_the_transposed_matrix() -> None:
    x = SparseFeatures.from_dense(DENSE)
    transposed = x.transposed
    assert x.with_values(x.values * 2).transposed is transposed
    assert x.to(torch.float64).transposed is transposed
    assert x.to(torch.float32) is x


def test_dropout_drops_what_dense_dropout_drops() -> None:
    make = torch.Generator().manual_seed(0)
    dense = torch.randn(50, 20, generator=make) * (torch.rand(50, 20, generator=make) < 0.3)
    ids, clock = torch.arange(50) * 3, torch.tensor([1, 2, 3])
    ours = SparseFeatures.from_dense(dense).dropout(0.4, ids, clock, layer=2)
    plain = kernels.dropout(dense, ids, 0.4, clock=clock, layer=2)
    assert torch.equal(ours.to_dense(), plain)
    assert 0 < int((ours.values == 0).sum()) < ours.nnz


@settings(deadline=None, max_examples=60)
@given(dense=matrices(), width=st.integers(1, 5))
def test_product_with_a_weight_and_its_gradient_equal_the_dense_ones(dense: Tensor, width: int) -> None:
    x = SparseFeatures.from_dense(dense)
    assert torch.equal(x.to_dense(), dense)
    make = torch.Generator().manual_seed(0)
    weight = torch.randn(dense.shape[1], width, dtype=torch.float64, generator=make).requires_grad_()
    out = x @ weight
    assert torch.allclose(out, dense @ weight)
    grad = torch.randn(out.shape, dtype=torch.float64, generator=make)
    assert torch.allclose(torch.autograd.grad(out, weight, grad)[0], dense.t() @ grad)


@settings(deadline=None, max_examples=60)
@given(dense=matrices(), data=st.data())
def test_rows_are_the_rows_of_the_dense_matrix(dense: Tensor, data: st.DataObject) -> None:
    x, count = SparseFeatures.from_dense(dense), len(dense)
    index = torch.tensor(
        data.draw(st.lists(st.integers(0, count - 1)) if count else st.just([])), dtype=torch.int64
    )
    assert torch.equal(x[index].to_dense(), dense[index])
    start, stop = data.draw(st.integers(-2, 7)), data.draw(st.integers(-2, 7))
    assert torch.equal(x[start:stop].to_dense(), dense[start:stop])
    assert torch.equal(x[::2].to_dense(), dense[::2])
    mask = torch.arange(count) % 2 == 1
    assert torch.equal(x[mask].to_dense(), dense[mask])
    assert torch.equal(x.to_torch().to_dense(), dense)


@settings(deadline=None, max_examples=40)
@given(dense=matrices(), data=st.data(), at_once=st.integers(1, 20))
def test_product_of_sparse_matrices_equals_the_dense_one(
    dense: Tensor, data: st.DataObject, at_once: int
) -> None:
    from weft.graph import sparse as module

    source = st.integers(0, len(dense) - 1) if len(dense) else st.nothing()
    longest = 4 if len(dense) else 0
    rows = data.draw(st.lists(st.lists(source, max_size=longest), min_size=1, max_size=5))
    indices = torch.tensor([u for row in rows for u in row], dtype=torch.int32)
    indptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    scale = 1 + torch.arange(len(indices), dtype=torch.float64)
    matrix = torch.zeros(len(rows), len(dense), dtype=torch.float64)
    targets = torch.repeat_interleave(indptr[1:] - indptr[:-1])
    matrix.index_put_((targets, indices.long()), scale, accumulate=True)
    before, module._TERMS_AT_ONCE = module._TERMS_AT_ONCE, at_once
    try:
        out = product(indptr, indices, SparseFeatures.from_dense(dense), scale)
    finally:
        module._TERMS_AT_ONCE = before
    assert torch.allclose(out.to_dense(), matrix @ dense)
    assert len(out.values) == int(out.indptr[-1])
