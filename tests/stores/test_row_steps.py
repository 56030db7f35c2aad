"""Steps on learned rows by the core, held to plain torch, on any number of threads."""

import pytest
import torch
from torch import Tensor

from weft.errors import GraphError
from weft.kernels import native
from weft.stores.optim import rowwise_adagrad_rows, summed_rows
from weft.stores.row_steps import rowwise_adagrad_parts

WIDTH = 37


def parts_of(dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    sizes = (900, 0, 700)  # many rows of 300 stand several times
    return [
        (
            torch.randint(0, 300, (size,), generator=generator),
            torch.randn(size, WIDTH, generator=generator, dtype=dtype),
        )
        for size in sizes
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_is_that_of_summed_gradients_on_any_number_of_threads(dtype: torch.dtype) -> None:
    parts, found = parts_of(dtype), []
    first = torch.randn(320, WIDTH, dtype=dtype, generator=torch.Generator().manual_seed(3))
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        values, total = first.clone(), torch.rand(320, generator=torch.Generator().manual_seed(4)).to(dtype)
        for _ in range(2):
            rowwise_adagrad_parts(values, total, parts, lr=0.3)
        found.append((values, total))
    torch.set_num_threads(before)
    values, total = first.clone(), torch.rand(320, generator=torch.Generator().manual_seed(4)).to(dtype)
    rows, grads = (torch.cat(each) for each in zip(*parts))
    for _ in range(2):
        rowwise_adagrad_rows(values, total, *summed_rows(rows, grads), lr=0.3)
    for held in found:
        assert torch.equal(held[0], found[0][0])
        assert torch.equal(held[1], found[0][1])
    torch.testing.assert_close(found[0], (values, total))
    assert torch.equal(found[0][0][300:], first[300:])


def test_a_row_that_is_not_there_is_refused() -> None:
    if not native.available():
        pytest.skip("the native core is not built")
    values, total = torch.zeros(3, 2), torch.zeros(3)
    with pytest.raises(GraphError, match="gradients of learned rows"):
        rowwise_adagrad_parts(values, total, [(torch.tensor([3]), torch.ones(1, 2))], lr=0.1)
    assert not values.any()
