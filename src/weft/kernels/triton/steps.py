"""What the kernels that `weft.compiler` writes call: which rows a program has, running results, functions.

A tile is edges × rows × values: each program has a few rows and takes some edges of each at a time. A hub
comes as several items of at most `plan.SEGMENT` edges, merged afterwards in their order.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import gpu
from weft.kernels.triton.extreme import better, over_edges, same, take
from weft.kernels.triton.plan import HubPlan, power

if gpu.INTERPRETED:

    @triton.jit
    def expm1(x):
        """Give exp x − 1, precise near 0 (Kahan)."""
        u = tl.exp(x)
        near = (u - 1.0) * x / tl.log(tl.where(u == 1.0, 2.0, u))
        return tl.where(u == 1.0, x, tl.where((u < 0.5) | (u > 2.0), u - 1.0, near))

    @triton.jit
    def log1p(x):
        """Give log(1 + x), precise near 0 (Kahan)."""
        u = 1.0 + x
        return tl.where(u == 1.0, x, tl.log(u) * x / tl.where(u == 1.0, 1.0, u - 1.0))

    @triton.jit
    def tanh(x):
        """Give the hyperbolic tangent."""
        u = expm1(-2.0 * tl.abs(x))
        t = -u / (u + 2.0)
        return tl.where(x < 0, -t, t)

    @triton.jit
    def pow(x, y):
        """Give x to the power of y, also of a negative x to a whole power."""
        size = tl.exp(y * tl.log(tl.where(x == 0.0, 1.0, tl.abs(x))))
        size = tl.where(x == 0.0, tl.where(y == 0.0, 1.0, tl.where(y > 0.0, 0.0, float("inf"))), size)
        odd = tl.floor(y * 0.5) * 2.0 != y
        signed = tl.where(tl.floor(y) == y, tl.where(odd, -size, size), float("nan"))
        return tl.where(x < 0.0, signed, size)

    @triton.jit
    def flags(x):
        """Give bytes as numbers."""
        return x.to(tl.float32)

else:
    from triton.language.extra import libdevice

    # Triton finds a GPU's own library by the name of this module, in the file of the kernel that calls it.
    @triton.jit
    def expm1(x):
        """Give exp x − 1, precise near 0."""
        return libdevice.expm1(x)

    @triton.jit
    def log1p(x):
        """Give log(1 + x), precise near 0."""
        return libdevice.log1p(x)

    @triton.jit
    def tanh(x):
        """Give the hyperbolic tangent."""
        return libdevice.tanh(x)

    @triton.jit
    def pow(x, y):
        """Give x to the power of y."""
        return libdevice.pow(x, y)

    @triton.jit
    def flags(x):
        """Give bytes as numbers.

        A matrix product that found bytes behind its rows would lay these out as if they were bytes.
        """
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x.to(tl.float32)], dtype=tl.float32, is_pure=False, pack=1
        )


__all__ = [
    "expm1",
    "flags",
    "items",
    "log1p",
    "merge_softmax",
    "online",
    "outer",
    "over_edges",
    "pow",
    "product",
    "same",
]
__all__ += ["take", "tanh", "upper", "winner", "winner_over_edges"]


@triton.jit
def upper(x, PRECISION: tl.constexpr):
    """Give what matrix units hold of float32, exactly; all of it where they are not to be more precise."""
    if PRECISION == "tf32x3":
        return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return x


@triton.jit
def outer(a, b, total, PRECISION: tl.constexpr):
    """Add aᵀ b to a running sum; what is infinite in either makes the sum no number."""
    a = tl.trans(a)
    if PRECISION == "tf32x3":
        high, other = upper(a, PRECISION), upper(b, PRECISION)
        total = tl.dot(a - high, other, total, input_precision="tf32")
        total = tl.dot(high, b - other, total, input_precision="tf32")
        return tl.dot(high, other, total, input_precision="tf32")
    return tl.dot(a, b, total, input_precision=PRECISION, out_dtype=total.dtype)


@triton.jit
def product(x, weight, rest, PRECISION: tl.constexpr):
    """Multiply rows by a weight, given as its upper part and the rest: as float32 by three products of tf32.

    The parts of a weight are made once, those of rows here. The smaller products come first.
    """
    if PRECISION == "tf32x3":
        high = upper(x, PRECISION)
        small = tl.dot(x - high, weight, input_precision="tf32")
        small = tl.dot(high, rest, small, input_precision="tf32")
        # infinity times 0 of a rest is not a number: the last product has what is
        small = tl.where(small == small, small, 0.0)
        return tl.dot(high, weight, small, input_precision="tf32")
    return tl.dot(
        x, weight, input_precision=PRECISION, out_dtype=tl.float64 if x.dtype == tl.float64 else tl.float32
    )


@triton.jit
def winner(who, best, ties, value, other, live):
    """Give whose edges attain the larger of the best so far, which `ties` edges do, and of a value.

    −1: of none yet; −2: of several.
    """
    alike = tl.where((ties == 0) | (who == other), other, -2)
    who = tl.where(live & same(value, best), alike, who)
    return tl.where(live & better(value, best), other, who)


@triton.jit
def winner_over_edges(who, best, ties):
    """Give whose edges attain the largest value along axis 0: −1 where there is none, −2 of several."""
    top, _ = over_edges(best, ties)
    attained = same(best, top) & (ties > 0)
    least = tl.min(tl.where(attained, who, 2147483647), 0, keep_dims=True)
    last = tl.max(tl.where(attained, who, -1), 0, keep_dims=True)
    # −2 of a lane is the least there is
    return tl.where((least == last) | (last == -1), tl.where(least < -1, -2, last), -2)


@triton.jit
def items(
    indptr,
    order,
    rows,
    starts,
    item,
    num_segments,
    num_items,
    ORDERED: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Give of each item its row, first edge, number of edges, and whether it is a segment and a whole row.

    Items are the segments of hubs, in row rows[i] from edge starts[i] on, and then all rows, where ORDERED as
    order [num_rows] has them; indptr is [num_rows + 1].
    """
    live = item < num_items
    place = tl.where(live, item, 0)
    if HUBS:
        segment = item < num_segments
        place = tl.where(live & (item >= num_segments), item - num_segments, 0)
    else:
        segment = item < 0
    row = place
    if ORDERED:
        row = tl.load(order + place)
    if HUBS:
        row = tl.where(segment, tl.load(rows + item, mask=segment, other=0).to(row.dtype), row)
    first = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    degree = end - first
    whole = live
    if HUBS:
        first = tl.where(segment, tl.load(starts + item, mask=segment, other=0), first)
        # a hub met as a row is left to its segments; a dead segment begins behind its row
        whole = live & (item >= num_segments) & (degree <= SEGMENT)
        degree = tl.where(segment, tl.maximum(tl.minimum(end - first, SEGMENT), 0), degree)
        live = whole | segment
    count = tl.where(live, degree, 0).to(tl.int32)
    if WIDE:
        row = row.to(tl.int64)
    else:
        first = first.to(tl.int32)
    return row, first, count, segment, whole


@triton.jit
def online(top, score):
    """Take scores along axis 0 into the running maximum: (maximum, powers, what older sums shrink by)."""
    above = tl.maximum(top, tl.max(score, 0, keep_dims=True))
    base = tl.where(above == float("-inf"), 0.0, above)
    return above, tl.exp(score - base), tl.exp(top - base)


@triton.jit
def _merge_softmax_kernel(
    part,
    part_top,
    part_mass,
    firsts,
    hubs,
    out,
    logarithm,
    H: tl.constexpr,
    W: tl.constexpr,
    BS: tl.constexpr,
    BW: tl.constexpr,
):
    """Merge the segments of a hub: part [segments, H, W] by part_top and part_mass [segments, H].

    The segments of hub i are firsts[i] … firsts[i + 1]; its row hubs[i] of out [num_rows, H, W] and logarithm
    [num_rows, H] gets the mean and the logarithm of the mass. A row of -1 is no hub.
    """
    hub = tl.program_id(0)
    head = tl.program_id(1)
    w = tl.arange(0, BW)[None, :]
    begin = tl.load(firsts + hub)
    count = (tl.load(firsts + hub + 1) - begin).to(tl.int32)
    row = tl.load(hubs + hub)
    columns = tl.where(row >= 0, W, 0)  # none of a dead hub
    offsets = tl.arange(0, BS)[:, None]
    top = tl.full([1, 1], float("-inf"), part.dtype.element_ty)
    mass = tl.zeros([1, 1], part.dtype.element_ty)
    total = tl.zeros([1, BW], part.dtype.element_ty)
    for k in range(0, count, BS):
        live = k + offsets < count
        slot = (begin + k + offsets) * H + head
        score = tl.load(part_top + slot, mask=live, other=float("-inf"))
        top, powers, shrink = online(top, score)
        masses = powers * tl.load(part_mass + slot, mask=live, other=0.0)
        mass = mass * shrink + tl.sum(masses, 0, keep_dims=True)
        value = tl.load(part + slot * W + w, mask=live & (w < W), other=0.0)
        total = total * shrink + tl.sum(powers * value, 0, keep_dims=True)
    total = total / tl.where(mass == 0.0, 1.0, mass)
    level = tl.where(top == float("-inf"), 0.0, top) + tl.log(mass)
    place = tl.maximum(row, 0) * H + head
    tl.store(out + place * W + w, total.to(out.dtype.element_ty), mask=w < columns)
    tl.store(logarithm + place + w * 0, level.to(logarithm.dtype.element_ty), mask=w < tl.minimum(columns, 1))


def merge_softmax(
    plan: HubPlan, part: Tensor, part_top: Tensor, part_mass: Tensor, out: Tensor, logarithm: Tensor
) -> None:
    """Merge the segments' softmaxes in order, into the hubs' rows of `out` and `logarithm`."""
    _, heads, width = out.shape
    _merge_softmax_kernel[(plan.num_hubs, heads)](
        part,
        part_top,
        part_mass,
        plan.firsts,
        plan.hubs,
        out,
        logarithm,
        H=heads,
        W=width,
        BS=8,
        BW=power(width),
        num_warps=1,
    )
