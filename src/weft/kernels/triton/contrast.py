"""Parts of a step on learned rows that would each go over memory several times: softmax, complex products."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.triton.plan import power


@triton.jit
def _slope_kernel(scores, live, losses, columns, scale, LIVE: tl.constexpr, BC: tl.constexpr):
    """Turn a row of scores into the slope of its loss, column 0 the true one; one program per row.

    scores [rows, columns] in and out, live [rows] what a row counts, losses [rows] out.
    """
    row = tl.program_id(0).to(tl.int64)
    scores += row * columns
    counts = tl.load(live + row) if LIVE else 1.0
    true = tl.load(scores) * scale
    most = tl.full([BC], float("-inf"), tl.float32)
    total = tl.zeros([BC], tl.float32)
    for k in range(0, columns, BC):
        at = k + tl.arange(0, BC)
        x = tl.load(scores + at, mask=at < columns, other=float("-inf")) * scale
        new = tl.maximum(most, x)
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(most - shift) + tl.exp(x - shift)
        most = new
    peak = tl.max(most, 0)
    total = tl.sum(total * tl.exp(most - peak), 0)
    tl.store(losses + row, (tl.log(total) + peak - true) * counts)
    for k in range(0, columns, BC):
        at = k + tl.arange(0, BC)
        x = tl.load(scores + at, mask=at < columns, other=float("-inf")) * scale
        share = tl.exp(x - peak) / total - tl.where(at == 0, 1.0, 0.0)
        tl.store(scores + at, share * (scale * counts), mask=at < columns)


def softmax_slope(scores: Tensor, live: Tensor | None, temperature: float) -> Tensor:
    """Return -log softmax of column 0 of scores [n, 1 + m] / temperature, [n], and put its slope in place.

    `live` [n] is what each row counts, None: 1.
    """
    rows, columns = scores.shape
    losses = scores.new_empty(rows)
    assert scores.is_contiguous()
    block = min(power(columns), 4096)
    _slope_kernel[(rows,)](
        *(scores, losses if live is None else live, losses, columns, 1.0 / temperature),
        LIVE=live is not None,
        BC=block,
        num_warps=8 if block > 1024 else 4,
    )
    return losses


@triton.jit
def _product_kernel(x, w, out, count, sign, K: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply complex numbers: x, w and out are [n, 2 K], real parts first, count = n · K."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < count
    real = at // K * (2 * K) + at % K
    xr, xi = tl.load(x + real, mask=live, other=0.0), tl.load(x + real + K, mask=live, other=0.0)
    wr = tl.load(w + real, mask=live, other=0.0)
    wi = tl.load(w + real + K, mask=live, other=0.0) * sign
    tl.store(out + real, xr * wr - xi * wi, mask=live)
    tl.store(out + real + K, xi * wr + xr * wi, mask=live)


_BLOCK = 1024


def complex_product(x: Tensor, w: Tensor, conjugate: bool) -> Tensor:
    """Return x * w, or x * conj(w), of [n, 2 k], real parts first."""
    out = torch.empty_like(x)
    if (count := x.numel() // 2) > 0:
        grid = (triton.cdiv(count, _BLOCK),)
        sign = -1.0 if conjugate else 1.0
        _product_kernel[grid](x, w, out, count, sign, K=x.shape[1] // 2, BLOCK=_BLOCK, num_warps=4)
    return out
