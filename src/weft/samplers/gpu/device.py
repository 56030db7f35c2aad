"""The samplers' core on a GPU, for a graph that lies there: uniform draws, the same bits as on the CPU."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from weft.errors import GraphError
from weft.kernels import gpu
from weft.samplers.core.reference import checked_seeds
from weft.samplers.core.request import Hop, Request, Sample, Slots

if TYPE_CHECKING:
    from weft.kernels.triton.sample import CapturedDraws, DrawnEdges

_REPEATS = 3
"""Calls of a kind before one is recorded: the kernels are compiled by then, and more calls to come."""
_KINDS = 8
"""Kinds of calls that are recorded; a loader has two, the last batch of an epoch being smaller."""


class _Kind(NamedTuple):
    """What the launches of a call depend on."""

    indices: int
    num_seeds: int
    fanouts: tuple[int, ...]
    replace: bool
    once: bool


class _Kept:
    """What calls for one graph leave to the next; lists hold what no thread is using now."""

    def __init__(self) -> None:
        self.tables: list[Tensor] = []
        self.recordings: dict[_Kind, list[CapturedDraws]] = defaultdict(list)
        self.calls: Counter[_Kind] = Counter()

    def worth_recording(self, kind: _Kind) -> bool:
        """Count a call, and return whether it is to be one of a recording."""
        self.calls[kind] += 1
        known = kind in self.recordings or len(self.recordings) < _KINDS
        return known and min(kind.fanouts, default=-1) >= 0 and self.calls[kind] > _REPEATS


_kept = WeakTensorKeyDictionary()
"""By a graph's pointers."""


def obstacle(slots: Slots) -> str:
    """Return why draws from these edges are not made on a GPU, or nothing."""
    if not gpu.available():
        return "Triton is not there"
    if slots.weight is not None:
        return "weighted draws are made on the CPU"
    if slots.edge_time is not None:
        return "draws by time are made on the CPU"
    if len(slots.node_offsets) > 2 or slots.edge_type is not None or slots.sorted:
        return "graphs of several node or edge types are sampled on the CPU"
    return ""


def check(slots: Slots) -> None:
    """Refuse edges on a GPU that are not drawn from there."""
    reason = obstacle(slots)
    if reason:
        raise GraphError(f"the graph lies on {slots.indptr.device}, but {reason}: graph.to(device='cpu')")


def sample(request: Request) -> Sample:
    """Return the sample of one batch; the host waits for the GPU once, for the sizes."""
    from weft.kernels.triton import plan  # Triton is imported where there is a GPU

    slots = request.slots
    if request.hidden is not None:
        where = slots.indptr.device
        raise GraphError(
            f"the graph lies on {where}, but edges are hidden on the CPU: graph.to(device='cpu')"
        )
    checked_seeds(request.seeds, slots.num_nodes)
    kept: _Kept = _kept.setdefault(slots.indptr, _Kept())  # type: ignore[no-untyped-call]
    fanouts = tuple(request.fanouts[:, 0].tolist())
    kind = _Kind(slots.indices.data_ptr(), request.seeds.numel(), fanouts, request.replace, request.once)
    if slots.indptr.is_cuda and kept.worth_recording(kind):
        nodes, hops = _replayed(request, kind, kept.recordings[kind])
    else:
        nodes, hops = _launched(request, kind, kept.tables)
    for hop, fanout in zip(hops, fanouts):
        if 0 <= fanout <= plan.SEGMENT:
            plan.without_hubs(hop.indptr, hop.indices.shape[0])
    return Sample(nodes, None, tuple(Hop(*hop[:3], None, hop.num_rows) for hop in hops))


def _launched(request: Request, kind: _Kind, tables: list[Tensor]) -> "tuple[Tensor, list[DrawnEdges]]":
    from weft.kernels.triton import sample as kernel

    slots, keys = request.slots, request.keys[:, 0].tolist()
    try:
        table = tables.pop()
    except IndexError:  # of an empty list, which another thread may have emptied just now
        table = kernel.new_table(slots.num_nodes, slots.indptr.device)
    options = {"replace": kind.replace, "once": kind.once}
    drawn = kernel.sample(slots.indptr, slots.indices, request.seeds, kind.fanouts, keys, table, **options)
    tables.append(table)
    return drawn


def _replayed(
    request: Request, kind: _Kind, free: "list[CapturedDraws]"
) -> "tuple[Tensor, list[DrawnEdges]]":
    from weft.kernels.triton.sample import CapturedDraws

    slots = request.slots
    try:
        recording = free.pop()
    except IndexError:
        recording = CapturedDraws(slots.indptr, slots.indices, *kind[1:])
    drawn = recording.sample(request.seeds, request.keys[:, 0].tolist())
    free.append(recording)
    return drawn
