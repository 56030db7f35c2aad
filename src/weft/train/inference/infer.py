"""Inference over the whole graph in bounded memory.

Layer by layer: all edges into a piece of the nodes, the rows of their sources gathered from a store, one
layer, the results written for all nodes before the next layer begins. Every row is computed once a layer and
the result is that of a forward over the whole graph. Memory is that of one piece, and of the rows between two
layers, which lie in memory or in files beside the output.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft import process
from weft.errors import GraphError, InputError
from weft.events import Events
from weft.format import as_path
from weft.graph.graph import Graph
from weft.graph.row_ranges import some_edges
from weft.samplers.base import as_seeds
from weft.samplers.neighbor import Fanout, NeighborSampler
from weft.stores.base import Store
from weft.stores.cached import free_bytes
from weft.stores.memory import MemoryStore
from weft.stores.mmap import MmapStore
from weft.stores.open import by_rows
from weft.strategies.call import evaluating
from weft.strategies.hops import checked_hops
from weft.train.inference.predictions import Predictions
from weft.train.inference.runs import Draw, Runner, SampledOutputs, from_samples, placed
from weft.train.inference.stages import Chain, Stage, chain_of
from weft.train.model import adapt

LEAST = 1 << 28
_COPIES = 4  # of a piece's rows that a layer makes: gathered, transformed, aggregated, given
_ROWS = 1 << 16
Tell = Callable[[int, int, int, int], None]


def infer(
    model: nn.Module | Sequence[nn.Module],
    graph: Graph,
    *,
    nodes: Any = None,
    out: str | os.PathLike[str] | None = None,
    fanout: Fanout | None = None,
    batch_size: int = 1024,
    seed: int = 0,
    memory: int | None = None,
    threads: int = 2,
    device: torch.device | str | None = None,
    events: Events | None = None,
) -> Predictions:
    """Return the model's output for nodes (global ids; by default all of the target type), keyed by your ids.

    The features may be a store. Exact, layer by layer, for a Stack or a list of layers; `memory` bounds the
    bytes of a piece (default: a quarter of what is free), though never below one node with all its edges.
    With `fanout` any model is run on sampled neighbourhoods of `batch_size` nodes instead. `out` is a new
    folder: outputs, and rows between layers while it runs, then lie in files. `device` is where the model is
    run, by default where it lies; graph and outputs stay on the host. Each piece is an event `infer` with the
    layer and the rows done.
    """
    process.adapt()
    listed = list(model) if isinstance(model, Sequence) else None
    whole = nn.ModuleList(listed) if listed is not None else model
    assert isinstance(whole, nn.Module)
    _check(graph, memory)
    graph = by_rows(adapt(graph, whole), None, _computed_in(whole))
    wanted = _wanted(graph, nodes)
    with evaluating(whole), torch.no_grad(), _places(out) as places, placed(whole, device) as where:
        memory = room_for(where) if memory is None else memory
        report = _Report(events)
        if fanout is not None:
            checked_hops(whole, fanout, "fanout")
            draw = Draw(fanout, seed, batch_size, threads)
            rows = _sampled(from_samples(whole, None, graph, wanted, draw, where), wanted, places, report)
        else:
            chain = chain_of(model, graph)
            runner = Runner(graph, where)
            stores = by_layer(chain, runner, wanted, places=places, report=report, memory=memory)
            rows = _finish(chain, wanted, stores, places, memory, where)
    return Predictions.of_graph(graph, wanted, rows)


def room_for(device: torch.device) -> int:
    """Return what a piece may take where nothing is said: a quarter of what is free."""
    return max(LEAST, free_bytes(device) // 4)


class _Report:
    def __init__(self, events: Events | None) -> None:
        self.events = events

    def __call__(self, layer: int, layers: int, rows: int, num_rows: int) -> None:
        if self.events is not None:
            self.events.write("infer", layer=layer, layers=layers, rows=rows, num_rows=num_rows)


class RowPlaces:
    """Where the rows of all nodes between two layers lie, and the output: in memory."""

    def new(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Store:
        """Return a store for rows that come piece by piece."""
        return MemoryStore(torch.zeros(tuple(shape), dtype=dtype))

    def take(self, name: str, rows: Tensor) -> Store:
        """Return a store of rows that are all there."""
        return MemoryStore(rows)

    def held(self, name: str) -> Store | None:
        """Return rows that an earlier attempt finished; None where there are none."""
        return None

    def done(self, name: str, store: Store, seconds: float) -> Store:
        """Note that all rows are written, which took so long; return where they are read."""
        return store

    def drop(self, name: str) -> None:
        """Forget rows that no further layer reads."""

    def finish(self, store: Store, name: str) -> Store:
        """Put the output in its place."""
        return store


class _Files(RowPlaces):
    """Files beside the output, gone in the end but for the output itself."""

    def __init__(self, out: Path, scratch: Path) -> None:
        self.out, self.scratch = out, scratch

    def new(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Store:
        return MmapStore.create(self.scratch / name, shape, dtype=dtype)

    def take(self, name: str, rows: Tensor) -> Store:
        store = self.new(name, rows.shape, rows.dtype)
        store.write(torch.arange(len(rows)), rows)
        return store

    def drop(self, name: str) -> None:
        shutil.rmtree(self.scratch / name, ignore_errors=True)

    def finish(self, store: Store, name: str) -> Store:
        store.close()
        os.rename(self.scratch / name, self.out)
        return MmapStore(self.out)


@contextmanager
def _places(given: Any) -> Iterator[RowPlaces]:
    out: Path | None = None if given is None else as_path(given)
    if out is None:
        yield RowPlaces()
        return
    if out.exists():
        raise InputError(f"out: {out} exists; remove it or write elsewhere")
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield _Files(out, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def by_layer(
    chain: Chain,
    runner: Runner,
    wanted: Tensor,
    *,
    places: RowPlaces,
    report: Tell = lambda *_: None,
    memory: int,
    keep: int = 1,
) -> list[Store]:
    """Return the rows after the last `keep` stages, or after all where the model's end needs them.

    Every stage is run once on the nodes whose rows are needed; what `places` still holds is not run again.
    `report` is told (stage, stages, rows done, rows in all).
    """
    needed = needed_nodes(runner.graph, wanted, [stage.hops for stage in chain.stages])
    start, stores = _found(chain, places, keep)
    for number in range(start, len(chain.stages)):
        began = time.perf_counter()
        before = stores[-1] if stores else None
        task = _Task(number, len(chain.stages), chain.stages[number], runner, needed[number], before)
        stores.append(_run_stage(task, places, report, memory))
        stores[-1] = places.done(_name(number), stores[-1], time.perf_counter() - began)
        if len(stores) > keep and not chain.keep_all:
            places.drop(_name(number - keep))
            stores.pop(0)
    return stores


def _found(chain: Chain, places: RowPlaces, keep: int) -> tuple[int, list[Store]]:
    """Return the first stage that is left to do, and the rows after those before it that are still read.

    Short stages are not kept, so there may be gaps: what lacks a stage before is no place to go on from.
    """
    stores = [places.held(_name(number)) for number in range(len(chain.stages))]
    for start in range(len(stores), -1, -1):
        first = 0 if chain.keep_all else max(0, start - keep)
        stores_held = [store for store in stores[first:start] if store is not None]
        if len(stores_held) == start - first:
            break
    for number in (*range(first), *range(start, len(stores))):
        places.drop(_name(number))
    return start, stores_held


def _name(number: int) -> str:
    return f"layer{number}"


@dataclass(frozen=True, eq=False)
class _Task:
    number: int
    count: int
    stage: Stage
    runner: Runner
    nodes: Tensor
    before: Store | None


def _run_stage(task: _Task, places: RowPlaces, report: Tell, memory: int) -> Store:
    """Return the rows of all nodes after one stage; those of nodes that nobody needs stay zero."""
    stage, graph = task.stage, task.runner.graph
    sampler = NeighborSampler(graph, [-1] * stage.hops)
    row = max(stage.width, *_widths(graph, task.before), 1) * _value_bytes(graph, task.before) * _COPIES
    store: Store | None = None
    done = 0
    if task.nodes.numel() == graph.num_nodes and graph.num_nodes * row + task.runner.room <= memory:
        made = task.runner.whole(stage, task.before)
        report(task.number, task.count, graph.num_nodes, graph.num_nodes)
        return places.take(_name(task.number), made)
    for nodes in pieces(graph, task.nodes, stage.hops, memory // row):
        made = task.runner.piece(stage, sampler.sample(nodes), task.before)
        if store is None:
            store = places.new(_name(task.number), (graph.num_nodes, *made.shape[1:]), made.dtype)
        store.write(nodes, made)
        done += nodes.numel()
        report(task.number, task.count, done, task.nodes.numel())
    assert store is not None, "there is always one piece"
    return store


def _finish(
    chain: Chain, wanted: Tensor, stores: list[Store], places: RowPlaces, memory: int, device: torch.device
) -> Store:
    """Return the output of the wanted nodes from the rows that the stages gave."""
    made = ((nodes, chain.finish(rows).cpu()) for nodes, rows in some_rows(wanted, stores, memory, device))
    return _kept(made, wanted, places)


def _sampled(outputs: Iterator[SampledOutputs], wanted: Tensor, places: RowPlaces, report: _Report) -> Store:
    """Return the outputs of the wanted nodes, which come in their order."""

    def told() -> Iterator[tuple[Tensor, Tensor]]:
        done = 0
        for each in outputs:
            yield each.nodes, each.output
            done += each.nodes.numel()
            report(0, 1, done, wanted.numel())

    return _kept(told(), wanted, places)


def _kept(made: Iterator[tuple[Tensor, Tensor]], wanted: Tensor, places: RowPlaces) -> Store:
    """Return a store of the outputs of all nodes, some of which come at a time."""
    output: Store | None = None
    done = 0
    for nodes, rows in made:
        if output is None:
            output = places.new("output", (wanted.numel(), *rows.shape[1:]), rows.dtype)
        output.write(torch.arange(done, done + nodes.numel()), rows)
        done += nodes.numel()
    assert output is not None, "there is always one piece"
    return places.finish(output, "output")


def some_rows(
    wanted: Tensor, stores: Sequence[Store], memory: int, device: torch.device
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Give the wanted nodes, some at a time and at least once, with their rows after each stage held."""
    size = sum(store.shape[1:].numel() * store.dtype.itemsize for store in stores)
    rows = max(1, min(_ROWS, memory // (_COPIES * size)))
    for start in range(0, max(wanted.numel(), 1), rows):
        nodes = wanted[start : start + rows]
        yield nodes, [store.gather(nodes).to(device) for store in stores]


def pieces(graph: Graph, nodes: Tensor, hops: int, budget: int) -> Iterator[Tensor]:
    """Give ascending nodes in runs with at most `budget` edges and rows in `hops` hops, one node at least."""
    degree = graph.indptr[nodes + 1] - graph.indptr[nodes] + 1
    spread = (1.0 + graph.num_edges / max(graph.num_nodes, 1)) ** (hops - 1)
    work = degree.cumsum(0)
    limit = max(1, int(budget / spread))
    start = 0
    while start < nodes.numel():
        before = int(work[start - 1]) if start else 0
        stop = int(torch.searchsorted(work, before + limit, right=True))
        stop = min(max(stop, start + 1), start + _ROWS)
        yield nodes[start:stop]
        start = stop
    if not nodes.numel():
        yield nodes


def needed_nodes(graph: Graph, wanted: Tensor, hops: Sequence[int]) -> list[Tensor]:
    """Return the nodes whose rows are needed after each stage, ascending: from the wanted ones backwards."""
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[wanted] = True
    needed = []
    for count in reversed(hops):
        needed.append(mask.nonzero().flatten())
        for _ in range(count):
            if bool(mask.all()):
                break
            within, mask = mask, mask.clone()
            for src, dst in some_edges(graph.indptr, graph.indices):
                mask[src[within[dst]].long()] = True
    return needed[::-1]


def _widths(graph: Graph, before: Store | None) -> list[int]:
    if before is not None:
        return [before.shape[1:].numel()]
    x = graph.x
    features = list(x.values()) if isinstance(x, dict) else [x]
    return [int(each.shape[1]) for each in features if each is not None and len(each.shape) > 1]


def _value_bytes(graph: Graph, before: Store | None) -> int:
    """Return the bytes of a value of the rows that a stage reads, and of those that it makes of them."""
    x = graph.x if before is None else before
    features = list(x.values()) if isinstance(x, dict) else [x]
    return max(4, *(each.dtype.itemsize for each in features if each is not None), 4)


def _computed_in(model: nn.Module) -> torch.dtype:
    """Return the type that a model computes with."""
    kinds = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    return next(kinds, torch.get_default_dtype())


def _wanted(graph: Graph, nodes: Any) -> Tensor:
    if nodes is None:
        return torch.arange(graph.target_rows.start, graph.target_rows.stop)
    wanted = as_seeds(graph, nodes)
    wrong = wanted[(wanted < 0) | (wanted >= graph.num_nodes)]
    if wrong.numel():
        raise GraphError(f"nodes: expected ids 0 … {graph.num_nodes - 1:,}, got {int(wrong[0]):,}")
    if bool((torch.bincount(wanted) > 1).any()):
        raise GraphError("nodes: an id is there twice; ask for each once")
    return wanted


def _check(graph: Any, memory: int | None) -> None:
    if not isinstance(graph, Graph):
        raise InputError(f"graph: expected a weft.Graph, got a {type(graph).__name__}")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 1):
        raise InputError(f"memory: expected a number of bytes, got {memory!r}")
    if graph.device.type != "cpu":
        raise InputError(
            f"the graph lies on {graph.device}; inference keeps it on the host and brings a device what it "
            "needs: graph.to(device='cpu')"
        )
