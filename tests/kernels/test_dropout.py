"""Dropout by counter draws."""

import numpy as np
import pytest
import torch
from kernel_checks import FLOATS, same_bits, values

from weft import draw, kernels
from weft.draw import Stream
from weft.errors import InputError
from weft.kernels.dropout import dropout_op

pytestmark = pytest.mark.gpu

CLOCK = torch.tensor([7, 3, 2])


def _kept(ids: torch.Tensor, lanes: np.ndarray, p: float, layer: int = 0) -> torch.Tensor:
    key = draw.fold(7, Stream.DROPOUT, 3, 2, layer)
    bits = draw.draw(key, ids.cpu().numpy(), lanes).astype(np.uint64)
    return torch.from_numpy(bits >= np.uint64(draw.threshold(p))).to(ids.device)


@pytest.mark.parametrize("shape", [(1,), (7,), (16,), (33,), (3, 5), ()])
@pytest.mark.parametrize("dtype", FLOATS)
def test_exactly_the_elements_below_the_threshold_are_zeroed(
    form: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    ids = torch.tensor([5, 0, 2**40, 5, 17])
    x = values(5, *shape, dtype=dtype)
    out = kernels.dropout(x, ids, 0.3, clock=CLOCK, layer=4)
    kept = _kept(ids[:, None], np.arange(x[0].numel()), 0.3, layer=4).reshape(x.shape)
    assert torch.equal(out, torch.where(kept, x * (1 / 0.7), 0))


@pytest.mark.parametrize("lane_type", [torch.int32, torch.int64])
def test_sparse_values_are_keyed_by_id_and_lane(form: str, lane_type: torch.dtype) -> None:
    ids, lanes = torch.tensor([0, 0, 4, 9, 9]), torch.tensor([1, 900, 0, 3, 2], dtype=lane_type)
    dense = kernels.dropout(torch.ones(10, 1000), torch.arange(10), 0.5, clock=CLOCK)
    out = kernels.dropout(torch.ones(5), ids, 0.5, clock=CLOCK, lanes=lanes)
    assert torch.equal(out, dense[ids, lanes.long()])


def test_backward_draws_the_same_mask_even_if_the_clock_has_moved(form: str) -> None:
    clock, x = CLOCK.clone(), torch.ones(40, 20, requires_grad=True)
    out = kernels.dropout(x, torch.arange(40), 0.4, clock=clock)
    clock += 1
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())
    assert not torch.equal(kernels.dropout(x, torch.arange(40), 0.4, clock=clock), out)


def test_the_mask_depends_on_everything_that_keys_it(form: str) -> None:
    x, ids = torch.ones(30, 30), torch.arange(30)
    base = kernels.dropout(x, ids, 0.5, clock=CLOCK)
    others = [
        kernels.dropout(x, ids, 0.5, clock=CLOCK, layer=1),
        kernels.dropout(x, ids, 0.5, clock=CLOCK, stream=Stream.ROUND),
        kernels.dropout(x, ids + 1, 0.5, clock=CLOCK),
        *[kernels.dropout(x, ids, 0.5, clock=CLOCK + torch.eye(3, dtype=torch.int64)[i]) for i in range(3)],
    ]
    assert all(300 < int((base != other).sum()) < 600 for other in others)


def test_the_share_of_zeros_is_p(form: str) -> None:
    out = kernels.dropout(torch.ones(1000, 100), torch.arange(1000), 0.3, clock=CLOCK)
    assert abs(float((out == 0).float().mean()) - 0.3) < 0.006


def test_p_of_zero_and_one(form: str) -> None:
    x = torch.tensor([[1.0, float("nan")]])
    assert kernels.dropout(x, torch.arange(1), 0.0, clock=CLOCK) is x
    assert kernels.dropout(x, torch.arange(1), 1.0, clock=CLOCK).tolist() == [[0, 0]]


def test_dropped_nan_is_zero_and_kept_nan_is_nan(form: str) -> None:
    x = torch.full((20, 20), float("nan"))
    out = kernels.dropout(x, torch.arange(20), 0.5, clock=CLOCK)
    kept = _kept(torch.arange(20)[:, None], np.arange(20), 0.5)
    assert torch.equal(out.isnan(), kept)
    assert not out[~kept].any()


def test_views_no_rows_small_ids_and_threads(form: str, nan_memory: None) -> None:
    x = values(6, 30)
    ids = torch.arange(30, dtype=torch.int32)
    expected = kernels.dropout(x.T.contiguous(), ids.long(), 0.5, clock=CLOCK)
    assert torch.equal(kernels.dropout(x.T, ids, 0.5, clock=CLOCK), expected)
    assert kernels.dropout(torch.zeros(0, 4), torch.arange(0), 0.5, clock=CLOCK).shape == (0, 4)
    many = values(3000, 50)
    same_bits(lambda: [kernels.dropout(many, torch.arange(3000), 0.5, clock=CLOCK)])


def test_the_clock_and_the_lanes_may_be_of_another_integer_type(form: str) -> None:
    x, ids, lanes = values(50), torch.arange(50), torch.arange(50) % 7
    expected = kernels.dropout(x, ids, 0.5, clock=CLOCK, lanes=lanes)
    for kind in (torch.int32, torch.int16):
        got = kernels.dropout(x, ids, 0.5, clock=CLOCK.to(kind), lanes=lanes.to(kind))
        assert torch.equal(got, expected)


def test_gradcheck_opcheck_and_compile_with_a_moving_clock(form: str) -> None:
    ids = torch.arange(5)
    x = values(5, 3, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda x: kernels.dropout(x, ids, 0.5, clock=CLOCK), x)
    torch.library.opcheck(dropout_op, (x, ids, 0.5, CLOCK, 2, 0, None))
    run = lambda x, clock: kernels.dropout(x.relu(), ids, 0.5, clock=clock)  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for step in range(3):
        clock = torch.tensor([1, 0, step])
        assert torch.equal(compiled(x, clock), run(x, clock))


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match=r"0 … 1, got 1\.5"):
        kernels.dropout(torch.ones(2, 2), torch.arange(2), 1.5, clock=CLOCK)
    with pytest.raises(InputError, match=r"clock .* \[3\], got \[2\]"):
        kernels.dropout(torch.ones(2, 2), torch.arange(2), 0.5, clock=torch.arange(2))
    with pytest.raises(InputError, match="each of 2 rows, got 3 ids"):
        kernels.dropout(torch.ones(2, 2), torch.arange(3), 0.5, clock=CLOCK)
