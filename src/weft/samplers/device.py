"""The samplers' core on a GPU, for a graph that lies there: uniform draws, the same bits as on the CPU."""

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from weft.errors import GraphError
from weft.kernels import gpu
from weft.samplers.reference import checked_seeds
from weft.samplers.request import Hop, Request, Sample, Slots

_tables = WeakTensorKeyDictionary()
"""Of a graph's pointers, the tables of nodes that no call is using now."""


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
    from weft.kernels.triton import sample as kernel

    slots = request.slots
    checked_seeds(request.seeds, slots.num_nodes)
    free: list[Tensor] = _tables.setdefault(slots.indptr, [])  # type: ignore[no-untyped-call]
    table = free.pop() if free else kernel.new_table(slots.num_nodes, slots.indptr.device)
    nodes, hops = kernel.sample(
        slots.indptr,
        slots.indices,
        request.seeds,
        request.fanouts[:, 0].tolist(),
        request.keys[:, 0].tolist(),
        table,
        replace=request.replace,
        once=request.once,
    )
    free.append(table)
    for hop, fanout in zip(hops, request.fanouts[:, 0].tolist()):
        if 0 <= fanout <= plan.SEGMENT:
            plan.without_hubs(hop.indptr, hop.indices.shape[0])
    return Sample(nodes, None, tuple(Hop(*hop[:3], None, hop.num_rows) for hop in hops))
