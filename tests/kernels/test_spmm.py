"""Sums and means over incoming edges."""

import pytest
import torch
from kernel_checks import FLOATS, WIDTHS, assert_near, compare, csr, hub_csr, needs_core, same_bits, values

from weft import kernels
from weft.errors import GraphError, InputError
from weft.kernels.spmm import spmm_op

pytestmark = pytest.mark.gpu

# 0 → 0, 1 → 0, 2 → 1; row 2 has no edge
INDPTR, INDICES = torch.tensor([0, 2, 3, 3]), torch.tensor([0, 1, 2], dtype=torch.int32)
X = torch.tensor([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])


def test_sum_adds_the_rows_that_the_edges_point_at(form: str) -> None:
    assert kernels.spmm(INDPTR, INDICES, X).tolist() == [[11, 22], [100, 200], [0, 0]]


def test_mean_divides_by_the_edges_and_empty_rows_give_zero(form: str) -> None:
    assert kernels.spmm(INDPTR, INDICES, X, reduce="mean").tolist() == [[5.5, 11], [100, 200], [0, 0]]


def test_weights_and_scales_multiply(form: str) -> None:
    out = kernels.spmm(
        INDPTR,
        INDICES,
        X,
        torch.tensor([1.0, 2.0, 3.0]),
        src_scale=torch.tensor([1.0, 0.5, 0.25]),
        dst_scale=torch.tensor([2.0, 4.0, 8.0]),
    )
    assert out.tolist() == [[22, 44], [300, 600], [0, 0]]


def test_a_weight_a_head_multiplies_the_columns_of_its_head(form: str) -> None:
    out = kernels.spmm(INDPTR, INDICES, X[:, :, None], torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]]))
    assert out.squeeze(-1).tolist() == [[1, 20], [200, 600], [0, 0]]


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_are_reached_through_reduce(form: str, reduce: str) -> None:
    out = kernels.spmm(INDPTR, INDICES, X, reduce=reduce)
    assert out.tolist() == [[10, 20] if reduce == "max" else [1, 2], [100, 200], [0, 0]]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_width_and_type_agrees_with_the_definition(form: str, width: int, dtype: torch.dtype) -> None:
    indptr, indices = csr(30, 25, 200, seed=width)
    compare(lambda x: kernels.spmm(indptr, indices, x), [values(30, width, dtype=dtype)])


@pytest.mark.parametrize("heads", [None, 1, 3, 8])
@pytest.mark.parametrize("dim", [1, 5, 16, 20])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_weights_and_their_gradient(form: str, heads: int | None, dim: int, reduce: str) -> None:
    indptr, indices = csr(30, 25, 200)
    x = values(30, heads or 2, dim)
    weight = values(200) if heads is None else values(200, heads)
    scales = {"src_scale": values(30, seed=1), "dst_scale": values(25, seed=2)}
    compare(lambda x, w: kernels.spmm(indptr, indices, x, w, reduce, **scales), [x, weight])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_take_weights_in_their_own_type(form: str, dtype: torch.dtype) -> None:
    indptr, indices = csr(30, 25, 200)
    x, weight = values(30, 19, dtype=dtype), values(200, dtype=dtype)
    compare(lambda x, w: kernels.spmm(indptr, indices, x, w, "mean"), [x, weight])


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_indices_of_both_sizes_and_a_given_transpose(form: str, index: torch.dtype) -> None:
    indptr, indices = csr(30, 25, 200, index=index)
    transposed = kernels.transpose_csr(indptr, indices, 30)
    run = lambda x, w: kernels.spmm(indptr.int(), indices, x, w, "mean", transposed=transposed)  # noqa: E731
    compare(run, [values(30, 17), values(200)])


def test_transposed_edges_of_the_other_size_are_accepted(form: str) -> None:
    indptr, indices = csr(30, 25, 200)
    indptr_t, indices_t, edges_t = kernels.transpose_csr(indptr, indices, 30)
    transposed = kernels.Transposed(indptr_t, indices_t, edges_t.long())
    compare(
        lambda x, w: kernels.spmm(indptr, indices, x, w, transposed=transposed), [values(30, 17), values(200)]
    )


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("edges", [4096, 4097, 9000])
def test_a_hub_is_summed_like_any_row(form: str, reduce: str, edges: int) -> None:
    indptr, indices = hub_csr(50, edges)
    weight = values(edges + 2)
    compare(
        lambda x, w: kernels.spmm(indptr, indices, x, w, reduce, src_scale=values(50).abs()),
        [values(50, 20), weight],
        terms=edges,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_hub_of_ones_counts_right(form: str, dtype: torch.dtype) -> None:
    # accumulated in 16 bits the sum would stop at 256 or 2048
    count = 60_000
    indptr, indices = torch.tensor([0, count]), torch.zeros(count, dtype=torch.int32)
    out = kernels.spmm(indptr, indices, torch.ones(1, 3, dtype=dtype))
    assert out.tolist() == [[torch.tensor(float(count)).to(dtype).item()] * 3]
    mean = kernels.spmm(indptr, indices, torch.ones(1, 3, dtype=dtype), reduce="mean")
    assert mean.tolist() == [[1.0] * 3]


def test_the_bits_do_not_depend_on_the_number_of_threads(form: str) -> None:
    indptr, indices = hub_csr(300, 20_000)
    more, further = csr(300, 2000, 40_000)
    weight = values(further.numel(), grad=True)

    def run() -> list[torch.Tensor]:
        x = values(300, 40, grad=True)
        out = kernels.spmm(indptr, indices, x, reduce="mean")
        other = kernels.spmm(more, further, x, weight)
        grads = torch.autograd.grad(out.square().sum() + other.square().sum(), [x, weight])
        return [out, other, *grads]

    if form == "reference":
        pytest.skip("the reference uses torch's own reductions")
    same_bits(run)


def test_all_of_the_result_is_written(form: str, nan_memory: None) -> None:
    indptr, indices = csr(30, 25, 40)
    for width in WIDTHS:
        x = torch.ones(30, width, requires_grad=True)
        out = kernels.spmm(indptr, indices, x, values(40))
        assert not out.isnan().any()
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert not grad.isnan().any()


@pytest.mark.parametrize("num_src", [0, 3])
@pytest.mark.parametrize("num_dst", [0, 3])
def test_no_edges_and_no_nodes(form: str, num_src: int, num_dst: int) -> None:
    x = torch.ones(num_src, 4, requires_grad=True)
    indptr, indices = torch.zeros(num_dst + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32)
    for reduce in ("sum", "mean", "max"):
        out = kernels.spmm(indptr, indices, x, reduce=reduce)
        assert out.shape == (num_dst, 4)
        assert not out.any()
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert grad.shape == x.shape
        assert not grad.any()


def test_views_and_expanded_gradients(form: str) -> None:
    indptr, indices = csr(30, 25, 200)
    compare(lambda x: kernels.spmm(indptr, indices, x.T), [values(13, 30)])
    compare(lambda x: kernels.spmm(indptr, indices, x[::2, 1:4]), [values(60, 6)])
    x = values(30, 5, grad=True)
    kernels.spmm(indptr, indices, x).sum().backward()  # the gradient of a sum has strides of 0
    degree = torch.bincount(indices, minlength=30).float()
    assert_near(x.grad, degree[:, None].expand(30, 5), torch.float32)  # type: ignore[arg-type]


def test_nan_and_infinity_reach_exactly_the_rows_that_read_them(form: str) -> None:
    x = X.clone()
    x[1, 0], x[2, 1] = float("nan"), float("inf")
    out = kernels.spmm(INDPTR, INDICES, x)
    assert out.isnan().tolist() == [[True, False], [False, False], [False, False]]
    assert out[1].tolist() == [100, float("inf")]


def test_gradients_of_first_and_second_order(form: str) -> None:
    indptr, indices = csr(6, 5, 14)
    x, weight = values(6, 2, 3, dtype=torch.float64, grad=True), values(14, 2, dtype=torch.float64, grad=True)
    scale = values(6, dtype=torch.float64)
    for reduce in ("sum", "mean"):
        run = lambda x, w: kernels.spmm(indptr, indices, x, w, reduce, src_scale=scale)  # noqa: B023, E731
        assert torch.autograd.gradcheck(run, (x, weight))
        assert torch.autograd.gradgradcheck(run, (x, weight))


@pytest.mark.parametrize("wanted", ["x", "weight"])
def test_only_the_asked_gradient_is_computed(form: str, wanted: str) -> None:
    indptr, indices = csr(30, 25, 200)
    x, weight = values(30, 5, grad=wanted == "x"), values(200, grad=wanted == "weight")
    kernels.spmm(indptr, indices, x, weight).sum().backward()
    assert (x.grad is not None, weight.grad is not None) == (wanted == "x", wanted == "weight")


def test_opcheck(form: str) -> None:
    indptr, indices = csr(6, 5, 14)
    x, weight = values(6, 2, 3, grad=True), values(14, 2, grad=True)
    scale = values(6)
    held = kernels.transpose_csr(indptr, indices, 6)
    torch.library.opcheck(spmm_op, (indptr, indices, None, x, weight, scale, None, True, False, *held))
    torch.library.opcheck(
        spmm_op, (indptr, indices, None, x, None, None, None, False, False, None, None, None)
    )


def test_compiles_without_a_graph_break(form: str) -> None:
    indptr, indices = csr(30, 25, 200)
    run = lambda x, w: kernels.spmm(indptr, indices, x.relu(), w, "mean").square()  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    x, weight = values(30, 5, grad=True), values(200, grad=True)
    expected = torch.autograd.grad(run(x, weight).sum(), [x, weight])
    got = torch.autograd.grad(compiled(x, weight).sum(), [x, weight])
    assert torch.equal(compiled(x, weight), run(x, weight))
    assert all(torch.allclose(a, b) for a, b in zip(got, expected))


@pytest.mark.slow
def test_compiles_with_inductor() -> None:
    indptr, indices = csr(30, 25, 200)
    run = lambda x, w: kernels.spmm(indptr, indices, x.relu(), w, "mean").square()  # noqa: E731
    compiled = torch.compile(run, fullgraph=True)
    x, weight = values(30, 5, grad=True), values(200, grad=True)
    got = torch.autograd.grad(compiled(x, weight).sum(), [x, weight])
    expected = torch.autograd.grad(run(x, weight).sum(), [x, weight])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, expected))


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="reduce must be sum, mean, max or min, got 'median'"):
        kernels.spmm(INDPTR, INDICES, X, reduce="median")
    with pytest.raises(InputError, match="takes no weight"):
        kernels.spmm(INDPTR, INDICES, X, torch.ones(3), reduce="max")
    with pytest.raises(GraphError, match=r"expected weight \[3\]"):
        kernels.spmm(INDPTR, INDICES, X, torch.ones(4))
    rows = {"src_scale": X.shape[0], "dst_scale": INDPTR.shape[0] - 1}
    for name, count in rows.items():
        for wrong in (torch.ones(count - 1), torch.ones(count, 1)):
            with pytest.raises(GraphError, match=rf"{name} of shape \[{count}\], got \[{wrong.shape[0]}"):
                kernels.spmm(INDPTR, INDICES, X, **{name: wrong})


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_a_vector_is_a_matrix_of_one_column(form: str, reduce: str) -> None:
    weight = None if reduce == "max" else torch.tensor([2.0, 3.0, 5.0], requires_grad=True)
    x = values(X.shape[0], grad=True)
    leaves = [leaf for leaf in (x, weight) if leaf is not None]
    out = kernels.spmm(INDPTR, INDICES, x, weight, reduce)
    wide = kernels.spmm(INDPTR, INDICES, x[:, None], weight, reduce)
    assert torch.equal(out, wide[:, 0])
    grads, expected = (torch.autograd.grad(made.square().sum(), leaves) for made in (out, wide))
    assert all(torch.equal(a, b) for a, b in zip(grads, expected))


@pytest.mark.parametrize("index", [torch.int16, torch.uint8])
def test_small_indices_are_widened(form: str, index: torch.dtype) -> None:
    indptr = INDPTR.to(index)
    for reduce in ("sum", "max"):
        expected = kernels.spmm(INDPTR, INDICES, X, reduce=reduce)
        assert torch.equal(kernels.spmm(indptr, INDICES.to(index), X, reduce=reduce), expected)
    with pytest.raises(InputError, match="indices must be whole numbers, got"):
        kernels.spmm(INDPTR, INDICES.float(), X)


@needs_core
@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_the_core_refuses_indices_outside_the_rows(index: int, reduce: str) -> None:
    indices = torch.tensor([0, index, 2], dtype=torch.int32)
    with pytest.raises(GraphError, match="points outside"):
        kernels.spmm(INDPTR, indices, X, reduce=reduce)


@needs_core
@pytest.mark.parametrize("indptr", [[0, 2, 3, 4], [1, 2, 3, 3], [0, 5, 3, 3]])
def test_the_core_refuses_row_pointers_that_do_not_rise_to_the_number_of_edges(indptr: list[int]) -> None:
    with pytest.raises(GraphError, match="indptr"):
        kernels.spmm(torch.tensor(indptr), INDICES, X)


@needs_core
@pytest.mark.parametrize("place", [-1, 3, 2**31 - 1])
def test_the_core_refuses_places_of_edges_outside_the_edges(place: int) -> None:
    made = kernels.transpose_csr(INDPTR, INDICES, 3)
    edges = made.edges.clone()
    edges[1] = place
    x = X.clone().requires_grad_()
    out = kernels.spmm(INDPTR, INDICES, x, torch.ones(3), transposed=made._replace(edges=edges))
    with pytest.raises(GraphError, match="points outside"):
        out.sum().backward()
