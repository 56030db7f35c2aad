"""What ranks do to see the order in which rows are sent, edges worked on and rows waited for."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from halo_jobs import graph_of, local_graph, parts_of
from layout_jobs import replicas
from torch.utils._python_dispatch import TorchDispatchMode

from weft.comm.group import Group
from weft.comm.pending import Pending
from weft.strategies.halo.halo import Halo
from weft.strategies.merged.vertex_cut import VertexCut
from weft.strategies.sequential.sequential import Sequential

ROWS = ("halo", "reduce", "broadcast")


class Recorded(TorchDispatchMode):
    """Notes what happens in this process: rows sent and waited for, and kernels run over edges."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if call.namespace == "weft" and "transpose" not in call.name():
            self.note("computed")
        return call(*args, **(kwargs or {}))

    def note(self, what: str) -> None:
        """Add an event; kernels that follow one another are one."""
        if what != "computed" or self.events[-1:] != ["computed"]:
            self.events.append(what)


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """Give the events of what is done meanwhile."""
    send, wait = Group.all_to_all, Pending.wait
    with Recorded() as mode:

        def sent(self: Group, *args: Any, **options: Any) -> Pending:
            pending, label = send(self, *args, **options), options["label"]
            if label.kind in ROWS:
                behind = " behind" if options.get("background") else ""
                mode.note(f"sent {label.direction}{behind}")
                pending.noted = mode, f"waited {label.direction}{behind}"  # type: ignore[attr-defined]
            return pending

        def waited(self: Pending) -> Any:
            owner, told = self.__dict__.pop("noted", (None, ""))
            if owner is not None:
                mode.note(told if owner is mode else f"{told} of before")
            return wait(self)

        Group.all_to_all, Pending.wait = sent, waited  # type: ignore[method-assign]
        try:
            yield mode.events
        finally:
            Group.all_to_all, Pending.wait = send, wait  # type: ignore[method-assign]


def events(group: Group) -> dict[str, list[str]]:
    """Return the order of events of one aggregate of rows and its gradient, by strategy."""
    graph = graph_of("hub").to(dtype=torch.float64)
    local = local_graph(group, graph, parts_of("hub", group.size), group.size)
    found: dict[str, list[str]] = {}
    for name, strategy in (
        ("halo", Halo(local, group=group)),
        ("halo sampled", Halo(local, group=group, exchange={"name": "sampled", "p": 0.5})),
        ("halo quantised", Halo(local, group=group, exchange="quantised")),
        ("sequential", Sequential(local, group=group)),
    ):
        found[name] = _aggregated(strategy)
    found["sequential max"] = _aggregated(Sequential(local, group=group), "max")
    late = Halo(local, group=group, exchange="stale")
    found["stale"] = [_aggregated(late, warm=False) for _ in range(3)][-1]
    split = replicas(group, graph, "hub", group.size)
    cut = VertexCut(split, group=group, exchange={"name": "delayed", "r": 2})
    found["delayed"] = [_aggregated(cut, warm=False) for _ in range(4)][-1]
    for strategy in (late, cut):
        strategy.state()
    return found


def _aggregated(strategy: Any, reduce: str = "sum", *, warm: bool = True) -> list[str]:
    block = strategy.layout.training_block()
    h = torch.randn(len(block.dst_ids), 3, dtype=torch.float64, requires_grad=True)
    if warm:  # what is kept, such as transposed edges, is made by then
        block.aggregate(h.detach().requires_grad_(), reduce).sum().backward()
        strategy.end_step()
        block = strategy.layout.training_block()
    with recorded() as told:
        out = block.aggregate(h, reduce)
        told.append("|")
        out.sum().backward()
    strategy.end_step()
    strategy.clock[1] += 1
    return told
