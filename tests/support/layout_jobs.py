"""What ranks do in the tests of the grid and of the vertex cut: importable by name, for other processes."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sequential_jobs
import torch
from delayed_jobs import follows_schedule
from halo_jobs import MODELS, cases, far, graph_of, model_of, parts_of, trained
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import spread
from weft.exchanges import exchanges
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import Shard, make_shards
from weft.strategies.local import LocalGraph
from weft.strategies.merged.grid import Grid
from weft.strategies.merged.vertex_cut import VertexCut
from weft.strategies.single import Single
from weft.train.model import adapt

GRIDS = {1: [(1, 1)], 2: [(2, 1), (1, 2)], 4: [(4, 1), (1, 4), (2, 2)]}
# An extreme, attention and relations: all models are in the proof of equivalence.
FEW = ("sage max", "gat", "rgcn")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def cell(group: Group, graph: Graph, parts: Tensor, shape: tuple[int, int]) -> LocalGraph:
    """Return what a rank of a grid holds."""
    assignment = Assignment(parts, group.size, cuts="grid", grid=shape)
    return LocalGraph(make_shards(graph, assignment)[group.rank])


def turns(size: int, names: Sequence[str]) -> Iterator[tuple[str, str, torch.dtype, tuple[int, int]]]:
    """Give every model on most graphs in float64, the grids taking turns, and on one in float32."""
    shapes = itertools.cycle(GRIDS[size])
    for number, name in enumerate(names):
        for place, (kind, dtype) in enumerate(cases(name)):
            turn = (place // 2 + number + size) % 5
            if kind == "typed" or turn < (3 if dtype == torch.float64 else 1):
                yield name, kind, dtype, next(shapes)


def grids_equal_one_process(group: Group, names: Sequence[str] = tuple(MODELS)) -> list[str]:
    """Train every model on every graph by every grid and in one process; return where they differ."""
    wrong: list[str] = []
    for name, kind, dtype, shape in turns(group.size, names):
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
        try:
            local = cell(group, graph, parts_of(kind, group.size), shape)
            strategy = Grid(local, seed=3, group=group, rows=shape[0], columns=shape[1])
            found = trained(strategy, model_of(local, name, dtype))
        except Exception as error:
            raise AssertionError(f"{name} on {kind}, {dtype}, {shape}") from error
        if group.rank == 0:  # the others have the same
            reference = trained(Single(graph, seed=3), model_of(graph, name, dtype))
            wrong += differences(found, reference, f"{name} on {kind} in {dtype} on {shape}", dtype)
    return wrong


def replicas(group: Group, graph: Graph, kind: str, num_parts: int) -> LocalGraph:
    """Return what a rank holds of a graph whose edges are dealt out; a kind without halo keeps one part."""
    held = [part for part, rank in enumerate(spread(num_parts, group.size)) if rank == group.rank]
    edges = torch.arange(graph.num_edges)
    parts = edges % num_parts if kind != "isolated" else edges * num_parts // (2 * graph.num_edges)
    shards = make_shards(graph, Assignment(parts.int(), num_parts, cuts="edges"))
    return LocalGraph(Shard.merge([shards[part] for part in held]))


def vertex_cut_equals_one_process(
    group: Group, exchange: Any = "exact", names: Sequence[str] = tuple(MODELS)
) -> list[str]:
    """Train every model on every graph by the vertex cut and in one process; return where they differ."""
    wrong: list[str] = []
    for name, kind, dtype, _ in turns(group.size, names):
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
        try:
            local = replicas(group, graph, kind, 4 if group.size == 2 else group.size)
            strategy = VertexCut(local, seed=3, group=group, exchange=exchange)
            found = trained(strategy, model_of(local, name, dtype))
        except Exception as error:
            raise AssertionError(f"{name} on {kind}, {dtype}") from error
        if group.rank == 0:
            reference = trained(Single(graph, seed=3), model_of(graph, name, dtype))
            wrong += differences(found, reference, f"{name} on {kind} in {dtype}", dtype)
    return wrong


def differences(
    found: dict[str, Tensor], reference: dict[str, Tensor], case: str, dtype: torch.dtype
) -> list[str]:
    """Return what differs by more than the type allows."""
    distances = {what: far(found[what], value) for what, value in reference.items()}
    return [
        f"{case}: {what} differs by {distance:.1e}"
        for what, distance in distances.items()
        if not distance <= TOLERANCE[dtype]
    ]


def grid_promises(group: Group, names: Sequence[str] = tuple(MODELS)) -> dict[str, Any]:
    """Return where grids differ from one process, and the words that one aggregate moves on each."""
    words = {
        f"{rows} x {columns}": moved_words(group, (rows, columns)) for rows, columns in GRIDS[group.size]
    }
    one_column = exact_points(group)
    return {
        "wrong": grids_equal_one_process(group, names) + one_column + grid_operations(group),
        "words": words,
        "inputs": inputs_travel_once(group),
        "resumed": grid_resumes(group),
    }


def grid_operations(group: Group) -> list[str]:
    """Return where what layers may ask of a block differs from the whole graph's."""
    wrong = []
    for kind, shape in itertools.product(("typed", "hub"), GRIDS[group.size]):
        graph = graph_of(kind).to(dtype=torch.float64)
        local = cell(group, graph, parts_of(kind, group.size), shape)
        strategy = Grid(local, group=group, rows=shape[0], columns=shape[1])
        wrong += sequential_jobs.differing(strategy.layout.training_block(), graph, group, f"{kind}, {shape}")
    return wrong


def grid_resumes(group: Group) -> bool:
    """Return whether the state of a grid that skips exchanges leads to the very same losses."""
    graph = adapt(graph_of("hub"), "sage").to(dtype=torch.float64)
    local = cell(group, graph, parts_of("hub", group.size), (group.size, 1))
    skip = {"name": "skip", "interval": 4}
    return resumed_equals_undisturbed(local, lambda: Grid(local, seed=3, group=group, exchange=skip))


def moved_words(group: Group, shape: tuple[int, int], width: int = 5) -> dict[str, int]:
    """Return the words that this rank receives for one aggregate of so many columns and its gradient."""
    local = cell(group, graph_of("directed"), parts_of("directed", group.size), shape)
    strategy = Grid(local, group=group, rows=shape[0], columns=shape[1])
    block = strategy.layout.training_block()
    h = torch.ones(block.num_dst, width, requires_grad=True)
    group.ledger.clear()
    block.aggregate(h).sum().backward()
    strategy.end_step()
    return received_words(group)


def inputs_travel_once(group: Group) -> list[int]:
    """Return the bytes that a rank sends for aggregates of sparse inputs after the first of them."""
    graph = adapt(graph_of("sparse"), "sage").to(dtype=torch.float64)
    sent = []
    for strategy in (
        Grid(
            cell(group, graph, parts_of("sparse", group.size), (1, group.size)),
            group=group,
            columns=group.size,
        ),
        VertexCut(replicas(group, graph, "sparse", group.size), group=group),
    ):
        block, x = strategy.layout.training_block(), strategy.graph.x
        assert block.aggregates_sparse(x)
        first = block.aggregate(x, "mean")
        group.ledger.clear()
        assert block.aggregate(x, "mean") is first
        sent.append(group.ledger.bytes_sent)
    return sent


def received_words(group: Group, size: int = 4) -> dict[str, int]:
    """Return the words of so many bytes that came, by kind and direction, and forget them."""
    words: dict[str, int] = {}
    for (label, _), volume in group.ledger.volumes.items():
        key = f"{label.kind} {label.direction}"
        words[key] = words.get(key, 0) + volume.bytes_received // size
    group.ledger.clear()
    return words


def exact_points(group: Group) -> list[str]:
    """Return where grids of one column differ from one process with other exchanges at their exact point."""
    graph = adapt(graph_of("hub"), "sage").to(dtype=torch.float64)
    reference = trained(Single(graph, seed=3), model_of(graph, "sage max", torch.float64))
    wrong = []
    for name in Grid.exchanges:
        local = cell(group, graph, parts_of("hub", group.size), (group.size, 1))
        exchange = {"name": name, **(exchanges[name].exact_at or {})}
        found = trained(
            Grid(local, seed=3, group=group, exchange=exchange), model_of(local, "sage max", torch.float64)
        )
        wrong += differences(found, reference, f"one column, {name}", torch.float64)
    return wrong


def vertex_cut_promises(group: Group, names: Sequence[str] = tuple(MODELS)) -> dict[str, Any]:
    """Return where the vertex cut differs from one process, and what its other exchanges did."""
    exact_delay = vertex_cut_equals_one_process(group, {"name": "delayed", "r": 0}, FEW)
    split, late = split_graph(group), {"name": "delayed", "r": 3}
    return {
        "wrong": vertex_cut_equals_one_process(group, names=names) + exact_delay,
        "bytes": {r: delayed_bytes(group, r) for r in (0, 1, 5)},
        "schedule": [*follows_schedule(group, 1), *follows_schedule(group, 2)],
        "none": parts_on_their_own(group),
        "local": words_of(group, "exact", backward="local"),
        "resumed": resumed_equals_undisturbed(
            split, lambda: VertexCut(split, seed=3, group=group, exchange=late)
        ),
        "local gradient": local_backward_differs(group),
    }


def split_graph(group: Group) -> LocalGraph:
    """Return what a rank holds of a graph most of whose nodes are split."""
    graph = adapt(graph_of("hub"), "sage").to(dtype=torch.float64)
    return replicas(group, graph, "hub", group.size)


def started(local: LocalGraph, name: str = "sage max") -> tuple[Any, torch.optim.Optimizer]:
    """Return a model with its first weights, and what trains it."""
    model = model_of(local, name, torch.float64)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def delayed_bytes(group: Group, r: int) -> dict[str, Any]:
    """Return what the first epoch and the next max(r, 1) epochs sent."""
    local = split_graph(group)
    strategy = VertexCut(local, seed=3, group=group, exchange={"name": "delayed", "r": r})
    model, optimizer = started(local, "sage mean")  # a maximum has more to tell leaves than where it is exact
    epochs = []
    for _ in range(1 + max(r, 1)):
        group.ledger.clear()
        strategy.epoch(model, optimizer)
        epochs.append(
            sum(
                volume.bytes_sent
                for (label, _), volume in group.ledger.volumes.items()
                if label.kind in ("reduce", "broadcast")
            )
        )
    strategy.state()
    strategy.close()
    return {"first": epochs[0], "next": epochs[1:]}


def parts_on_their_own(group: Group) -> list[str]:
    """Return where a part does more than act on its own edges and degrees when nothing is exchanged."""
    graph = adapt(graph_of("typed"), "sage").to(dtype=torch.float64)
    local = replicas(group, graph, "typed", group.size)
    shard = local.shard
    strategy = VertexCut(local, seed=3, group=group, exchange="none")
    x = local.x if isinstance(local.x, Tensor) else torch.ones(len(shard.node_ids), 3, dtype=torch.float64)
    group.ledger.clear()
    block = strategy.layout.training_block()
    here = torch.zeros(len(shard.node_ids), len(shard.node_ids), dtype=torch.float64)
    rows = torch.repeat_interleave(shard.indptr.diff())
    here.index_put_((rows, shard.indices.long()), here.new_ones(()), accumulate=True)
    degree = here.sum(1, keepdim=True)
    h = x.clone().requires_grad_()
    found = {
        "sum": (block.aggregate(h), here @ x),
        "mean of a constant": (block.aggregate(x, "mean"), here @ x / degree.clamp(min=1)),
        "mean": (block.aggregate(h, "mean"), here @ x / degree.clamp(min=1)),
        "mean of messages": (
            block.propagate(lambda u: 2 * u, src=[h], reduce="mean"),
            2 * here @ x / degree.clamp(min=1),
        ),
        "in-degree": (block.in_degree(), degree[:, 0]),
        "out-degree": (block.out_degree(), here.sum(0)),
    }
    wrong = [what for what, (mine, true) in found.items() if far(mine.detach(), true) > 1e-12]
    block.aggregate(h).sum().backward()
    wrong += [] if far(h.grad, here.sum(0)[:, None].expand_as(x)) < 1e-12 else ["gradient"]
    strategy.end_step()
    wrong += [f"{label.kind} was sent" for label, _ in group.ledger.volumes]
    model, optimizer = started(split_graph(group))
    strategy = VertexCut(split_graph(group), seed=3, group=group, exchange="none")
    strategy.epoch(model, optimizer)
    kinds = {label.kind for label, _ in group.ledger.volumes}
    strategy.close()
    return wrong + sorted(kinds & {"reduce", "broadcast", "evaluate", "features", "halo"})


def words_of(group: Group, exchange: str, backward: Any = "exact") -> dict[str, int]:
    """Return what a rank receives in the second epoch."""
    local = split_graph(group)
    strategy = VertexCut(local, seed=3, group=group, exchange=exchange, backward=backward)
    model, optimizer = started(local)
    strategy.epoch(model, optimizer)
    group.ledger.clear()
    strategy.epoch(model, optimizer)
    strategy.close()
    return received_words(group, 8)


def resumed_equals_undisturbed(local: LocalGraph, make: Callable[[], Any]) -> bool:
    """Return whether the state of a strategy, given to another, leads to the very same losses."""
    first = make()
    model, optimizer = started(local)
    for _ in range(3):
        first.epoch(model, optimizer)
    held = {name: value.clone() for name, value in first.state().items()}
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    losses = [first.epoch(model, optimizer) for _ in range(4)]
    first.state()
    first.close()
    second = make()
    model, optimizer = started(local)
    model.load_state_dict(weights)
    second.load_state(held)
    second.seek(3)
    again = [second.epoch(model, optimizer) for _ in range(4)]
    second.state()
    second.close()
    return losses == again


def local_backward_differs(group: Group) -> tuple[float, float]:
    """Return how far sums and their gradients are from exact ones where no gradients are exchanged."""
    local = split_graph(group)
    results = []
    for backward in ("exact", "local"):
        strategy = VertexCut(local, group=group, backward=backward)  # type: ignore[arg-type]
        block = strategy.layout.training_block()
        h = torch.arange(2.0 * block.num_dst, dtype=torch.float64).reshape(-1, 2).requires_grad_()
        out = block.aggregate(h)
        out.backward(torch.ones_like(out))
        assert h.grad is not None
        results.append((out.detach(), h.grad))
        if backward == "local":
            held = torch.bincount(block.indices.long(), minlength=block.num_src).double()
            assert far(h.grad, held[:, None].expand(-1, 2)) == 0.0, "each edge here passes on a gradient of 1"
    return far(results[1][0], results[0][0]), far(results[1][1], results[0][1])
