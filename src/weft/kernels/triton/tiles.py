"""Blocks of row-major matrices, as the kernels of matrix products load them."""

import triton
import triton.language as tl

from weft.kernels.triton.plan import power


def block_of(width: int) -> int:
    """Return the columns of a block that holds so many: a power of 2 that matrix instructions take."""
    return max(power(width), 16)


@triton.jit
def tile_of(x, rows, live, columns, WIDTH: tl.constexpr):
    """Load some rows, those that are live, and columns of a matrix of WIDTH columns; 0 beyond it."""
    inside = live[:, None] & (columns < WIDTH)[None, :]
    return tl.load(x + rows[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
