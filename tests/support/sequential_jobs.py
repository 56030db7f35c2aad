"""What ranks do in the tests of the sequential strategy: importable by name for other processes."""

import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import halo_jobs
import torch
from halo_jobs import NODES, far, features, graph_of, local_graph, trained
from torch import Tensor, nn

from weft.comm.group import Group
from weft.errors import GraphError
from weft.graph import Additive, Graph
from weft.strategies.halo.halo import Halo
from weft.strategies.sequential.parts import Round
from weft.strategies.sequential.sequential import Sequential
from weft.strategies.single import Single
from weft.train.model import adapt, build_model, ready

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **halo_jobs.MODELS,
    "sage gcn": ("sage", {"aggregate": "gcn", "residual": True}),
    "gatv2": ("gatv2", {"heads": 2, "attention_dropout": 0.3, "share_weights": True}),
    "gine": ("gine", {}),
    "appnp": ("appnp", {"hops": 3}),
    "monet": ("monet", {"kernels": 2}),
    "hgt": ("hgt", {"heads": 2, "attention_dropout": 0.3}),
    "edgeconv mean": ("edgeconv", {"aggregate": "mean"}),
}
TYPED = ("rgcn", "hgt")
ATTRIBUTED = ("gine", "gat", "gatv2", "monet")


def case_graph(kind: str) -> Graph:
    """Return one of the graphs of `halo_jobs`, or one whose edges have attributes."""
    if kind != "attributed":
        return graph_of(kind)
    generator = torch.Generator().manual_seed(6)
    edges = torch.randint(0, NODES, (2, 130), generator=generator)
    attr = torch.randn(130, 3, generator=generator)
    return Graph.from_edges(edges, num_nodes=NODES, edge_attr=attr, **features(NODES, 1))


def kinds_for(name: str) -> tuple[str, ...]:
    """Return the graphs to try a model on."""
    if name in TYPED:
        return ("typed",)
    plain = () if name == "gine" else ("directed", "hub", "components", "isolated", "sparse")
    return (*plain, "attributed") if name in ATTRIBUTED else plain


def cases(names: Sequence[str], salt: int, *, whole: bool) -> Iterator[tuple[str, str, torch.dtype]]:
    """Give models, graphs and types; calls with other salts try each model on other graphs."""
    for place, name in enumerate(names):
        kinds = kinds_for(name)
        for turn in range(min(2 if whole else 1, len(kinds))):
            kind = kinds[(salt + turn) % len(kinds)]
            yield name, kind, torch.float64
        if whole or (place + salt) % 3 == 0:
            yield name, kind, torch.float32


def parts_of(kind: str, num_parts: int) -> Tensor:
    """Return the part of each node: some in turn, some in runs, one part larger than the others."""
    parts = halo_jobs.parts_of(kind, num_parts)
    return parts if kind != "hub" else parts * (torch.arange(NODES) % 3 > 0)


def equal_to_one_process(
    group: Group,
    num_parts: int,
    salt: int,
    exchange: Any = "exact",
    names: Sequence[str] = tuple(MODELS),
    *,
    whole: bool = False,
) -> list[str]:
    """Train every model on a graph or two by the strategy and in one process; return where they differ."""
    wrong = []
    for name, kind, dtype in cases(names, salt, whole=whole):
        graph = adapt(case_graph(kind), MODELS[name][0]).to(dtype=dtype)
        parts = parts_of(kind, num_parts)
        parts[:num_parts] = torch.arange(num_parts)  # none is empty
        local = local_graph(group, graph, parts, num_parts)
        try:
            reference = trained(Single(graph, seed=3), model_of(graph, name, dtype))
            strategy = Sequential(local, seed=3, group=group, exchange=exchange)
            found = trained(strategy, model_of(local, name, dtype))
        except Exception as error:
            raise AssertionError(f"{name} on {kind}, {dtype}") from error
        bound = 1e-5 if dtype == torch.float32 else 1e-10
        for what, value in reference.items():
            distance = far(found[what], value)
            if not distance <= bound:
                wrong.append(f"{name} on {kind} in {dtype}: {what} differs by {distance:.1e}")
    return wrong


def model_of(graph: Any, name: str, dtype: torch.dtype) -> nn.Module:
    """Return the model, with the same first weights everywhere."""
    layer, options = MODELS[name]
    model = build_model(graph, layer, {"hidden": 8, "layers": 2, **options}, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=dtype)


def operations(group: Group, num_parts: int) -> list[str]:
    """Compare results and gradients of a block with those of the whole graph's; return what differs."""
    wrong = []
    for kind in ("typed", "hub", "isolated"):
        graph = case_graph(kind).to(dtype=torch.float64)
        parts = parts_of(kind, num_parts)
        parts[:num_parts] = torch.arange(num_parts)
        strategy = Sequential(local_graph(group, graph, parts, num_parts), group=group)
        wrong += differing(strategy.layout.training_block(), graph, group, kind)
    return wrong


def differing(block: Any, graph: Graph, group: Group, case: str) -> list[str]:
    """Return which operations of a block differ from those of the whole graph's, or their gradients."""
    wrong = []
    for name, operation in OPERATIONS.items():
        reference = gradients(operation, graph.block(), group, whole=True)
        found = gradients(operation, block, group, whole=False)
        for number, (ours, theirs) in enumerate(zip(found, reference, strict=True)):
            distance = far(ours, theirs)
            if not distance <= 1e-12:
                wrong.append(f"{name} on {case}: tensor {number} differs by {distance:.1e}")
    return wrong


def gradients(operation: Any, block: Any, group: Group, *, whole: bool) -> list[Tensor]:
    """Return output and gradients for every node and edge of the graph; those of all ranks together."""
    generator = torch.Generator().manual_seed(2)
    table = torch.randn(NODES, 2, 3, dtype=torch.float64, generator=generator)
    table[::3] = table[:1]  # ties
    of_edge = torch.randn(400, 2, dtype=torch.float64, generator=generator)
    module = nn.Linear(3, 3).double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, dtype=torch.float64, generator=generator))
    h, e = table[block.dst_ids].requires_grad_(), of_edge[block.edge_ids].requires_grad_()
    out = operation(block, h, e, module)
    wide = out.reshape(len(out), out.shape[1:].numel())
    (wide * table.flatten(1)[block.dst_ids][:, : wide.shape[1]]).sum().backward()
    places = (block.dst_ids, block.dst_ids, block.edge_ids)
    values = (out.detach(), h.grad, e.grad)
    made = []
    for ids, value in zip(places, values):
        value = torch.zeros(len(ids), 1).double() if value is None else value
        full = torch.zeros(400, value.shape[1:].numel(), dtype=torch.float64)
        full[ids] = value.reshape(len(ids), full.shape[1])
        made.append(full)
    made += [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
    return made if whole else [group.all_reduce(t).wait() for t in made]


def _softmax(block: Any, h: Tensor, e: Tensor, module: nn.Module) -> Tensor:
    return block.propagate(
        lambda u, v, w: (u.mean(-1) + w, module(u) * v), src=(h,), dst=(h,), edge=(e,), reduce="softmax"
    )


def _attend(block: Any, h: Tensor, e: Tensor, module: nn.Module) -> Tensor:
    score = Additive(h.sum(-1) * 5, h.mean(-1) * 9, edge=e)
    return block.attend(score, module(h))


OPERATIONS: dict[str, Any] = {
    "sum": lambda block, h, e, m: block.aggregate(m(h)),
    "flat sum": lambda block, h, e, m: block.aggregate(h[:, 0, 0]),
    "wide sum": lambda block, h, e, m: block.aggregate(h[..., None].expand(-1, 2, 3, 2))[..., 0],
    "weighted mean": lambda block, h, e, m: block.aggregate(m(h), "mean", weight=e),
    "relation": lambda block, h, e, m: block.aggregate(h, "mean", e, block.num_relations - 1),
    "max": lambda block, h, e, m: block.aggregate(h, "max"),
    "min of a relation": lambda block, h, e, m: block.aggregate(h, "min", relation=0),
    "attention": _attend,
    "softmax": _softmax,
    # Without a matrix product, whose last bits, and so ties, depend on how many edges are taken at once.
    "message": lambda b, h, e, m: b.propagate(
        lambda u, same, v: (u - v) * same * m.weight[0] + m.bias, src=(h, h), dst=(h,), reduce="min"
    ),
    "edges alone": lambda b, h, e, m: b.propagate(lambda w: w, edge=(e,), reduce="mean"),
    "all sources": lambda b, h, e, m: b.aggregate(b.src(m(h)), "max"),
}


def units(group: Group) -> dict[str, float]:
    """Return the volume of one training step of each kind of layer, in units of one exchange of its rows."""
    graph = graph_of("directed")
    parts = parts_of("directed", 2 * group.size)
    local = local_graph(group, graph, parts, 2 * group.size)
    strategy = Sequential(local, group=group)
    found = {}
    for name, operation in KINDS.items():
        block: Any = strategy.layout.training_block()
        h = torch.ones(block.num_dst, 2, 4, requires_grad=True)
        group.ledger.clear()
        operation(block, h).sum().backward()
        strategy.end_step()
        volumes = [v for v in group.ledger.snapshot()["volumes"] if v["kind"] == "halo"]
        received = sum(v["bytes_received"] + v["bytes_sent"] for v in volumes)
        halo, sent = block.exchange.plan.num_halo, len(block.exchange.plan.send_rows)
        found[name] = received / ((halo + sent) * h[0].numel() * h.element_size())
    return found


KINDS: dict[str, Any] = {
    "sum": lambda block, h: block.aggregate(h),
    "mean": lambda block, h: block.aggregate(h, "mean", weight=torch.ones(block.num_edges)),
    "learned weights": lambda block, h: block.aggregate(
        h, "sum", weight=torch.ones(block.num_edges, requires_grad=True)
    ),
    "max": lambda block, h: block.aggregate(h, "max"),
    "attention": lambda block, h: block.attend(_same_twice(h), h, 0.1),
    "messages": lambda block, h: block.propagate(lambda u, v: (u * v).tanh(), src=(h,), dst=(h,)),
    "softmax of messages": lambda block, h: block.propagate(
        lambda u, v: (v.sum(-1), u), src=(h,), dst=(h,), reduce="softmax"
    ),
    "factors of destinations": lambda block, h: block.propagate(lambda u, v: u * v, src=(h,), dst=(h,)),
    "numbers of edges": lambda block, h: block.propagate(
        lambda u, e: u * e, src=(h,), edge=(torch.ones(block.num_edges, 2, 1),)
    ),
    "learned numbers": lambda block, h: block.propagate(
        lambda u, e: u * e, src=(h,), edge=(torch.ones(block.num_edges, 2, 1, requires_grad=True),)
    ),
    "half of a row": lambda block, h: block.propagate(
        lambda u, v: u[:, :1] - v[:, :1], src=(h,), dst=(h,), reduce="mean"
    ),
    "twice": lambda block, h: block.aggregate(h) + block.aggregate(h, "mean"),
}


def _same_twice(h: Tensor) -> Any:
    from weft.graph import GATv2Score

    return GATv2Score(h, h, torch.ones(2, 4))


def live_rows(group: Group) -> dict[str, tuple[int, int, int]]:
    """Return, of each kind of layer, the most remote rows and gradients alive, and the two largest parts."""
    graph = graph_of("hub")
    parts = parts_of("directed", 3 * group.size)
    strategy = Sequential(local_graph(group, graph, parts, 3 * group.size), group=group)
    sizes = sorted(one.halo.stop - one.halo.start for one in strategy.layout.block.rounds)
    found = {}
    for name, operation in KINDS.items():
        block: Any = strategy.layout.training_block()
        h = torch.ones(block.num_dst, 2, 4, requires_grad=True)
        with Watch(sum(sizes[-2:])) as watch:
            operation(block, h).sum().backward()
        strategy.end_step()
        found[name] = (watch.most_rows, watch.most_gradients, sum(sizes[-2:]))
    return found


class Watch:
    """Counts the rows of remote parts that exist: from when they are asked for until their memory is freed.

    Beyond the bound it waits a moment: the thread that received them may still hold what it has given away.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound

    def __enter__(self) -> "Watch":
        self.most_rows = self.most_gradients = 0
        self._rows: list[tuple[Any, int]] = []
        self._gradients: list[tuple[Any, int]] = []
        self._before = Round.pull, Round.push
        pull, push = self._before

        def watched_pull(brings: Round, rows: Tensor, slot: int, kind: str) -> Any:
            pending: Any = pull(brings, rows, slot, kind)
            # Where the rows lie: an all-to-all receives into the buffer that is later given.
            self._rows.append((weakref.ref(pending._result.untyped_storage()), len(pending._result)))
            self.most_rows = max(self.most_rows, self.alive(self._rows))
            return pending

        def watched_push(brings: Round, gradient: Tensor, slot: int) -> Any:
            self._gradients.append((weakref.ref(gradient.untyped_storage()), len(gradient)))
            self.most_gradients = max(self.most_gradients, self.alive(self._gradients))
            return push(brings, gradient, slot)

        Round.pull, Round.push = watched_pull, watched_push  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Round.pull, Round.push = self._before  # type: ignore[method-assign]

    def alive(self, held: list[tuple[Any, int]]) -> int:
        """Return the rows whose memory exists."""
        count, patience = self.bound + 1, 200
        while count > self.bound and patience:
            count = sum(rows for storage, rows in held if storage() is not None)
            patience -= 1
            if count > self.bound:
                time.sleep(0.005)
        return count


def everything(group: Group, num_parts: int, salt: int, whole: bool) -> dict[str, Any]:
    """Do all of the above in one launch."""
    return {
        "training": equal_to_one_process(group, num_parts, salt, whole=whole),
        "operations": operations(group, num_parts),
        "units": units(group),
        "live rows": live_rows(group),
        "quantised": equal_to_one_process(group, num_parts, salt, {"name": "quantised", "bits": 32}, ["gat"]),
    }


def refusals_of_second_derivatives(group: Group) -> list[str]:
    """Return what `halo` and `sequential` say of a gradient whose gradient is wanted."""
    graph = graph_of("directed")
    local, said = local_graph(group, graph, halo_jobs.parts_of("directed", 2), 2), []
    for strategy in (Halo(local, group=group), Sequential(local, group=group)):
        model = build_model(local, "sage", {"hidden": 8})
        out = strategy.layout.training_rows(model)
        try:
            torch.autograd.grad(out.sum(), [*model.parameters()], create_graph=True)
        except GraphError as error:
            said.append(str(error))
    return said
