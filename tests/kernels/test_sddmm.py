"""Values for every edge from the rows at its ends."""

import pytest
import torch
from kernel_checks import FLOATS, compare, csr, hub_csr, needs_core, same_bits, values

from weft import kernels
from weft.errors import GraphError, InputError
from weft.kernels.sddmm import sddmm_dot_op, sddmm_op

pytestmark = pytest.mark.gpu

OPS = ["dot", "add", "sub", "mul"]
INDPTR, INDICES = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0], dtype=torch.int32)
A, B = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[10.0, 20.0], [30.0, 40.0]])


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("dot", [50, 110, 110]),
        ("add", [[11, 22], [13, 24], [31, 42]]),
        ("sub", [[-9, -18], [-7, -16], [-29, -38]]),
        ("mul", [[10, 40], [30, 80], [30, 80]]),
    ],
)
def test_values_by_hand(form: str, op: str, expected: list[float]) -> None:
    assert kernels.sddmm(INDPTR, INDICES, A, B, op).tolist() == expected


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(1,), (7,), (33,), (130,), (8, 5), (3, 16)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_width_and_type_agrees_with_the_definition(
    form: str, op: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    indptr, indices = csr(30, 25, 200)
    a, b = values(30, *shape, dtype=dtype), values(25, *shape, dtype=dtype, seed=1)
    compare(lambda a, b: kernels.sddmm(indptr, indices, a, b, op), [a, b])


@pytest.mark.parametrize("op", OPS)
def test_a_hub_given_transpose_and_wide_indices(form: str, op: str) -> None:
    indptr, indices = hub_csr(50, 9000)
    indices = indices.long()
    held = kernels.transpose_csr(indptr, indices, 50)
    run = lambda a, b: kernels.sddmm(indptr, indices, a, b, op, transposed=held)  # noqa: E731
    compare(run, [values(50, 6), values(3, 6)], terms=9000)


@pytest.mark.parametrize("op", OPS)
def test_the_bits_do_not_depend_on_the_number_of_threads(form: str, op: str) -> None:
    if form == "reference":
        pytest.skip("the reference uses torch's own reductions")
    indptr, indices = csr(300, 2000, 40_000)

    def run() -> list[torch.Tensor]:
        a, b = values(300, 20, grad=True), values(2000, 20, grad=True)
        out = kernels.sddmm(indptr, indices, a, b, op)
        return [out, *torch.autograd.grad(out.square().sum(), [a, b])]

    same_bits(run)


@pytest.mark.parametrize("op", OPS)
def test_views_expanded_gradients_and_no_edges(form: str, op: str, nan_memory: None) -> None:
    indptr, indices = csr(30, 25, 200)
    compare(lambda a, b: kernels.sddmm(indptr, indices, a.T, b[:, 1:6], op), [values(5, 30), values(25, 7)])
    a, b = values(30, 5, grad=True), values(25, 5, grad=True)
    kernels.sddmm(indptr, indices, a, b, op).sum().backward()
    assert a.grad is not None
    assert not a.grad.isnan().any()
    none = kernels.sddmm(torch.zeros(26, dtype=torch.int64), indices[:0], a, b, op)
    assert none.shape[0] == 0
    none.sum().backward()


@pytest.mark.parametrize("op", OPS)
def test_gradients_of_first_and_second_order(form: str, op: str) -> None:
    indptr, indices = csr(6, 5, 14)
    a = values(6, 2, 3, dtype=torch.float64, grad=True)
    b = values(5, 2, 3, dtype=torch.float64, grad=True)
    run = lambda a, b: kernels.sddmm(indptr, indices, a, b, op)  # noqa: E731
    assert torch.autograd.gradcheck(run, (a, b))
    assert torch.autograd.gradgradcheck(run, (a, b))


def test_opcheck_and_compile(form: str) -> None:
    indptr, indices = csr(6, 5, 14)
    held = kernels.transpose_csr(indptr, indices, 6)
    a, b = values(6, 3, grad=True), values(5, 3, grad=True)
    order = torch.randperm(14, dtype=torch.int32)
    scale = values(6)
    torch.library.opcheck(sddmm_dot_op, (indptr, indices, order, a, b, scale, None, True, True, *held))
    torch.library.opcheck(sddmm_op, (indptr, indices, a, b, "mul", *held))
    run = lambda a, b: kernels.sddmm(indptr, indices, a, b, "dot").relu()  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, b), run(a, b))


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="op must be dot, add, sub or mul, got 'div'"):
        kernels.sddmm(INDPTR, INDICES, A, B, "div")
    with pytest.raises(InputError, match="one width and type"):
        kernels.sddmm(INDPTR, INDICES, A, B[:, :1])
    for shape in ((), (2, 2, 2)):
        with pytest.raises(InputError, match=r"dot takes \[N, F\] or \[N, heads, D\]"):
            kernels.sddmm(INDPTR, INDICES, torch.ones(len(A), *shape), torch.ones(len(B), *shape))
    for rows in (B[1:], torch.cat([B, B])):
        with pytest.raises(InputError, match=f"b_dst of {len(B)} rows, got {len(rows)}"):
            kernels.sddmm(INDPTR, INDICES, A, rows, "add")


@needs_core
def test_the_core_refuses_indices_outside_the_rows() -> None:
    with pytest.raises(GraphError, match="points outside"):
        kernels.sddmm(INDPTR, INDICES + 1, A, B)
