"""A kernel that stores what the counter function of weft.kernels.triton draws; imported where Triton is."""

import triton
import triton.language as tl

from weft.kernels.triton.draw import draw, row_key


@triton.jit(do_not_specialize=["key"])
def fill(ids, lanes, out, key, N: tl.constexpr, L: tl.constexpr):
    """Store the draw of each pair of an id [N] and a lane [L]."""
    i = tl.arange(0, N)
    j = tl.arange(0, L)
    bits = draw(row_key(key, tl.load(ids + i))[:, None], tl.load(lanes + j)[None, :])
    tl.store(out + i[:, None] * L + j[None, :], bits.to(tl.int64))
