"""Softmax over the incoming edges of each row."""

import pytest
import torch
from kernel_checks import FLOATS, compare, csr, hub_csr, same_bits, values

from weft import kernels
from weft.errors import InputError
from weft.kernels.softmax import edge_softmax_backward_op, edge_softmax_op

pytestmark = pytest.mark.gpu


def test_a_row_is_torchs_softmax_of_its_edges(form: str) -> None:
    indptr = torch.tensor([0, 2, 2, 5])
    scores = torch.tensor([1.0, 3.0, -2.0, 0.5, 700.0])
    out = kernels.edge_softmax(indptr, scores)
    torch.testing.assert_close(out[:2], scores[:2].softmax(0))
    torch.testing.assert_close(out[2:], scores[2:].softmax(0))


@pytest.mark.parametrize("shape", [(0,), (2, 2), ()])
def test_pointers_that_are_none_of_any_rows_are_refused(form: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"indptr has one entry more than rows"):
        kernels.edge_softmax(torch.zeros(shape, dtype=torch.int64), torch.zeros(0))


@pytest.mark.parametrize("heads", [None, 1, 2, 3, 8, 16, 70])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_shape_and_type_agrees_with_the_definition(
    form: str, heads: int | None, dtype: torch.dtype
) -> None:
    indptr, _ = csr(30, 25, 200)
    shape = (200,) if heads is None else (200, heads)
    compare(lambda s: kernels.edge_softmax(indptr, s), [values(*shape, dtype=dtype) * 5])


@pytest.mark.parametrize("heads", [1, 5, 70])
def test_a_hub_is_merged_from_its_parts(form: str, heads: int) -> None:
    indptr, _ = hub_csr(50, 9000)
    scores = values(9002, heads) * 5
    compare(lambda s: kernels.edge_softmax(indptr, s) * 1000, [scores], terms=9000)
    out = kernels.edge_softmax(indptr, scores)
    torch.testing.assert_close(out[2:].sum(0), torch.ones(heads), rtol=1e-4, atol=1e-4)


def test_large_scores_do_not_overflow_and_masked_edges_get_zero(form: str) -> None:
    scores = torch.tensor([1e30, 1e30, float("-inf"), -3e38])
    assert kernels.edge_softmax(torch.tensor([0, 4]), scores).tolist() == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("edges", [3, 5000], ids=["row", "hub"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_that_is_masked_as_a_whole_gives_zero_and_no_gradient(
    form: str, heads: int, edges: int, dtype: torch.dtype
) -> None:
    scores = values(edges + 2, heads, dtype=dtype)
    scores[:edges, 0] = -torch.inf
    scores.requires_grad_()
    out = kernels.edge_softmax(torch.tensor([0, edges, edges + 2]), scores)
    assert not out[:edges, 0].any()
    torch.testing.assert_close(out[edges:].sum(0), torch.ones(heads, dtype=dtype))
    (grad,) = torch.autograd.grad(out, scores, values(edges + 2, heads, dtype=dtype, seed=2))
    assert not grad[:edges, 0].any()
    assert grad[edges:].all()


def test_nan_stays_in_its_row_and_head(form: str) -> None:
    scores = torch.zeros(4, 2)
    scores[1, 0] = float("nan")
    out = kernels.edge_softmax(torch.tensor([0, 2, 4]), scores)
    assert out.isnan().tolist() == [[True, False], [True, False], [False, False], [False, False]]


def test_the_bits_do_not_depend_on_the_number_of_threads(form: str) -> None:
    if form == "reference":
        pytest.skip("the reference uses torch's own reductions")
    indptr, _ = hub_csr(50, 20_000)

    def run() -> list[torch.Tensor]:
        scores = values(20_002, 3, grad=True)
        out = kernels.edge_softmax(indptr, scores)
        return [out, *torch.autograd.grad((out * scores).sum(), scores)]

    same_bits(run)


def test_views_expanded_gradients_empty_rows_and_no_edges(form: str, nan_memory: None) -> None:
    indptr, _ = csr(30, 25, 40)
    compare(lambda s: kernels.edge_softmax(indptr, s.T), [values(3, 40)])
    scores = values(40, grad=True)
    kernels.edge_softmax(indptr, scores).sum().backward()
    assert scores.grad is not None
    assert scores.grad.abs().max() < 1e-6
    assert kernels.edge_softmax(torch.zeros(4, dtype=torch.int64), torch.zeros(0, 2)).shape == (0, 2)


def test_gradcheck_opcheck_and_compile(form: str) -> None:
    indptr, _ = csr(6, 5, 14)
    scores = values(14, 2, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda s: kernels.edge_softmax(indptr, s), scores)
    torch.library.opcheck(edge_softmax_op, (indptr, scores))
    out = kernels.edge_softmax(indptr, scores.detach())
    torch.library.opcheck(edge_softmax_backward_op, (indptr, out, values(14, 2, dtype=torch.float64)))
    run = lambda s: kernels.edge_softmax(indptr, s.relu())  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(scores), run(scores))
