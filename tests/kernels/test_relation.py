"""A row times the matrix of its relation, against matrices that are gathered."""

import pytest
import torch
from torch import Tensor

from weft import kernels

CASES = {
    "mixed, one relation without rows": [3, 0, 0, 4, 1, 3, -1, 0, -5],
    "sorted": [0, 0, 1, 3, 3, 4],
    "no rows": [],
}


def gathered(kind: Tensor, rows: Tensor, table: Tensor) -> Tensor:
    return (rows.unsqueeze(1) @ table[kind]).squeeze(1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", CASES)
def test_products_and_gradients_of_both_orders_are_those_of_gathered_matrices(
    name: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    kind = torch.tensor(CASES[name], dtype=dtype)
    rows = torch.randn(len(kind), 3, dtype=torch.float64, requires_grad=True)
    table = torch.randn(5, 3, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(kernels.relation_matmul(kind, rows, table), gathered(kind, rows, table))
    torch.autograd.gradcheck(kernels.relation_matmul, (kind, rows, table))
    torch.autograd.gradgradcheck(kernels.relation_matmul, (kind, rows, table))


@pytest.mark.slow
def test_it_is_one_operator_in_torch_compile() -> None:
    kind = torch.tensor(CASES["mixed, one relation without rows"])
    rows, table = torch.randn(len(kind), 3, requires_grad=True), torch.randn(5, 3, 4, requires_grad=True)
    run = torch.compile(kernels.relation_matmul, backend="aot_eager", fullgraph=True)
    out = run(kind, rows, table)
    torch.testing.assert_close(out, gathered(kind, rows, table))
    found = torch.autograd.grad(out.square().sum(), [rows, table])
    want = torch.autograd.grad(gathered(kind, rows, table).square().sum(), [rows, table])
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("wrong", [5, -6])
def test_a_relation_outside_of_the_table_is_an_index_error(wrong: int) -> None:
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for dimension 0 with size 5"):
        kernels.relation_matmul(torch.tensor([0, wrong]), torch.randn(2, 3), torch.randn(5, 3, 4))
