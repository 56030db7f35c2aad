"""How the rows of a CSR are dealt to programs: one a row, hubs in segments of a fixed number of edges."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

# A row of so many edges is some 20 µs for one warp, which is what the tail of a launch may cost.
SEGMENT = 512
# Rows that are put in order of length among themselves: such as lie further apart share fewer neighbours.
WINDOW = 4096


class HubPlan(NamedTuple):
    """The hubs of a CSR, cut into segments. Programs 0 … num_segments − 1 take these, the others one row."""

    rows: Tensor
    """row of each segment, int64"""
    starts: Tensor
    """first edge of each segment, int64"""
    hubs: Tensor
    """rows of more than `segment` edges, int64; -1 where a bounded plan has none"""
    firsts: Tensor
    """first segment of each hub and, last, the number of segments, int64"""
    segment: int
    """edges of a segment; a row of more is a hub"""

    @property
    def num_segments(self) -> int:
        return self.rows.shape[0]

    @property
    def num_hubs(self) -> int:
        return self.hubs.shape[0]

    @property
    def items(self) -> tuple[Tensor, Tensor, int]:
        """What `item_of` reads of a plan, in the order of the kernels' parameters."""
        return self.rows, self.starts, self.num_segments

    def flags(self) -> dict[str, int]:
        """Return what kernels are compiled for, under the names that they give it."""
        return {"HUBS": self.num_hubs > 0, "SEGMENT": self.segment}


_plans = WeakTensorKeyDictionary()
_orders = WeakTensorKeyDictionary()


def plan_of(indptr: Tensor, num_edges: int) -> HubPlan:
    """Return the plan of a CSR, remembered with its pointers: finding the hubs waits for the GPU once."""
    held = _plans.get(indptr)
    if held is not None and held[0] == (indptr._version, num_edges, SEGMENT):
        plan: HubPlan = held[1]
        return plan
    # With fewer edges than a segment there is no hub, and nobody waits for the GPU to say so.
    plan = _find(indptr) if num_edges > SEGMENT else _no_hubs(indptr)
    _plans[indptr] = ((indptr._version, num_edges, SEGMENT), plan)
    return plan


def kept_with(indptr: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors of the plan that is remembered with these pointers; none where there is no plan."""
    held, order = _plans.get(indptr), _orders.get(indptr)
    found = () if held is None else (held[1].rows, held[1].starts, held[1].hubs, held[1].firsts)
    return found if order is None else (*found, order[1])


def order_of(indptr: Tensor) -> Tensor:
    """Return the rows, int32, those of one length together in each window; remembered with the pointers.

    Hubs, which rows are not where they are met, stand with the empty rows.
    """
    held = _orders.get(indptr)
    if held is not None and held[0] == (indptr._version, SEGMENT):
        order: Tensor = held[1]
        return order
    degree = indptr.diff()
    # A warp that takes rows of one length has no idle lanes; in windows, so that rows next to each other,
    # which share neighbours, stay near in time.
    degree = torch.where(degree > SEGMENT, 0, degree)
    window = torch.arange(len(degree), device=degree.device) // WINDOW
    order = torch.argsort(window * (SEGMENT + 1) + degree, stable=True).to(torch.int32)
    _orders[indptr] = ((indptr._version, SEGMENT), order)
    return order


def without_hubs(indptr: Tensor, num_edges: int) -> None:
    """Remember that no row has more than `SEGMENT` edges: nobody has to wait for the GPU to find out."""
    _plans[indptr] = ((indptr._version, num_edges, SEGMENT), _no_hubs(indptr))


def bounded(indptr: Tensor, num_edges: int) -> None:
    """Remember a plan made without waiting for the GPU: as many segments as there could be, dead ones last.

    For the pointers of edges by source, whose hubs `merge_sums` merges; not every merge knows a dead hub.
    """
    _plans[indptr] = ((indptr._version, num_edges, SEGMENT), _bounded(indptr, num_edges))


def _bounded(indptr: Tensor, num_edges: int) -> HubPlan:
    # So many rows at most can be longer than a segment: a bound that the host knows without asking.
    most = num_edges // (SEGMENT + 1)
    if not most:
        return _no_hubs(indptr)
    degree = indptr.diff()
    hub = degree > SEGMENT
    place = torch.where(hub, hub.cumsum(0) - 1, most)
    hubs = indptr.new_full((most + 1,), -1)
    hubs = hubs.scatter_(0, place, torch.arange(len(degree), device=indptr.device))[:most]
    counts = torch.where(hubs >= 0, (degree[hubs.clamp(min=0)] + SEGMENT - 1) // SEGMENT, 0)
    firsts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    number = torch.arange(num_edges // SEGMENT + most, device=indptr.device)
    of = torch.searchsorted(firsts[1:], number, right=True).clamp(max=most - 1)
    live = number < firsts[-1]
    rows = torch.where(live, hubs[of], 0)
    starts = torch.where(live, indptr[rows] + (number - firsts[of]) * SEGMENT, indptr[-1])
    return HubPlan(rows, starts, hubs, firsts, SEGMENT)


def _find(indptr: Tensor) -> HubPlan:
    degree = indptr.diff()
    hubs = torch.nonzero(degree > SEGMENT).reshape(-1)
    if not hubs.shape[0]:
        return _no_hubs(indptr)
    counts = (degree[hubs] + SEGMENT - 1) // SEGMENT
    firsts = torch.zeros(hubs.shape[0] + 1, dtype=torch.int64, device=indptr.device)
    torch.cumsum(counts, 0, out=firsts[1:])
    place = torch.repeat_interleave(torch.arange(hubs.shape[0], device=indptr.device), counts)
    nth = torch.arange(place.shape[0], device=indptr.device) - firsts[place]
    return HubPlan(hubs[place], indptr[hubs][place] + nth * SEGMENT, hubs, firsts, SEGMENT)


def _no_hubs(indptr: Tensor) -> HubPlan:
    empty = indptr.new_empty(0)
    return HubPlan(empty, empty, empty, indptr.new_zeros(1), SEGMENT)


def power(value: int) -> int:
    """Return the smallest power of 2 that is not below value; 1 for 0."""
    return 1 << max(value - 1, 0).bit_length()


@triton.jit
def item_of(indptr, rows, starts, num_segments, SEGMENT: tl.constexpr, HUBS: tl.constexpr):
    """Give the program's (row, first edge, number of edges, degree of the row, whether it is a segment)."""
    item = tl.program_id(0)
    if HUBS:
        segment = item < num_segments
        row = tl.load(rows + item, mask=segment, other=0)
        row = tl.where(segment, row, (item - num_segments).to(tl.int64))
        first = tl.load(indptr + row)
        end = tl.load(indptr + row + 1)
        degree = end - first
        start = tl.load(starts + item, mask=segment, other=0)
        start = tl.where(segment, start, first)
        count = tl.minimum(end - start, SEGMENT)
        # a hub met as a row is left to its segments
        count = tl.where(segment | (degree <= SEGMENT), count, 0).to(tl.int32)
        # no segment is taken for a whole row, also not a dead one, which has no edge and names row 0
        degree = tl.where(segment, tl.maximum(degree, SEGMENT + 1), degree)
    else:
        segment = False
        row = item.to(tl.int64)
        start = tl.load(indptr + row)
        degree = tl.load(indptr + row + 1) - start
        count = degree.to(tl.int32)
    return row, start, count, degree, segment


@triton.jit
def _merge_kernel(
    partial,
    firsts,
    rows,
    indptr,
    scale,
    out,
    F: tl.constexpr,
    MEAN: tl.constexpr,
    SCALED: tl.constexpr,
    COMPACT: tl.constexpr,
    BS: tl.constexpr,
    BF: tl.constexpr,
):
    """Sum the segments of a hub, partial [segments, F], into its row of out, or into row i where COMPACT.

    The segments of hub i are firsts[i] … firsts[i + 1], its row is rows[i]; scale is [num_dst].
    """
    hub = tl.program_id(0)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    begin = tl.load(firsts + hub)
    count = (tl.load(firsts + hub + 1) - begin).to(tl.int32)
    row = tl.load(rows + hub)
    columns = tl.where(row >= 0, F, 0)  # none of a dead hub
    row = tl.maximum(row, 0)
    offsets = tl.arange(0, BS)
    total = tl.zeros([BS, BF], partial.dtype.element_ty)
    for k in range(0, count, BS):
        live = (k + offsets < count)[:, None] & (f < F)[None, :]
        total += tl.load(partial + (begin + k + offsets)[:, None] * F + f[None, :], mask=live, other=0.0)
    result = tl.sum(total, 0)
    if MEAN:
        result /= tl.maximum(tl.load(indptr + row + 1) - tl.load(indptr + row), 1).to(tl.float32)
    if SCALED:
        result *= tl.load(scale + row)
    if COMPACT:
        row = hub.to(tl.int64)
    tl.store(out + row * F + f, result.to(out.dtype.element_ty), mask=f < columns)


def merge_sums(
    plan: HubPlan,
    partial: Tensor,
    out: Tensor,
    indptr: Tensor | None = None,
    *,
    mean: bool = False,
    scale: Tensor | None = None,
) -> None:
    """Add the segments' sums `partial` [num_segments, F] in order, into the rows of the hubs of `out`.

    An `out` of num_hubs rows without `indptr` gets one row per hub.
    """
    width = partial.shape[1]
    block = min(power(width), 128)
    _merge_kernel[(plan.num_hubs, triton.cdiv(width, block))](
        partial,
        plan.firsts,
        plan.hubs,
        plan.hubs if indptr is None else indptr,
        plan.hubs if scale is None else scale,
        out,
        F=width,
        MEAN=mean,
        SCALED=scale is not None,
        COMPACT=indptr is None,
        BS=16,
        BF=block,
        num_warps=1,
    )
