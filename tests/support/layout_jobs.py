"""What ranks do in the tests of the grid and of the vertex cut: importable by name, for other processes."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from halo_jobs import MODELS, cases, far, graph_of, model_of, parts_of, trained
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import spread
from weft.graph import Graph
from weft.graph.assignment import Assignment
from weft.graph.shard import Shard, make_shards
from weft.strategies.grid import Grid
from weft.strategies.local import LocalGraph
from weft.strategies.single import Single
from weft.strategies.vertex_cut import VertexCut
from weft.train.model import adapt

GRIDS = {1: [(1, 1)], 2: [(2, 1), (1, 2)], 4: [(4, 1), (1, 4), (2, 2)]}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def cell(group: Group, graph: Graph, parts: Tensor, shape: tuple[int, int]) -> LocalGraph:
    """Return what a rank of a grid holds."""
    assignment = Assignment(parts, group.size, cuts="grid", grid=shape)
    return LocalGraph(make_shards(graph, assignment)[group.rank])


def turns(size: int, names: Sequence[str]) -> Iterator[tuple[str, str, torch.dtype, tuple[int, int]]]:
    """Give every model on every graph in float64, the grids taking turns, and some in float32."""
    shapes = itertools.cycle(GRIDS[size])
    for number, name in enumerate(names):
        for place, (kind, dtype) in enumerate(cases(name)):
            if dtype == torch.float64 or place // 2 == number % 5:
                yield name, kind, dtype, next(shapes)


def grids_equal_one_process(group: Group, names: Sequence[str] = tuple(MODELS)) -> list[str]:
    """Train every model on every graph by every grid and in one process; return where they differ."""
    wrong: list[str] = []
    held: dict[tuple[str, str, torch.dtype], dict[str, Tensor]] = {}
    for name, kind, dtype, shape in turns(group.size, names):
        graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
        if (name, kind, dtype) not in held:
            held[name, kind, dtype] = trained(Single(graph, seed=3), model_of(graph, name, dtype))
        try:
            local = cell(group, graph, parts_of(kind, group.size), shape)
            strategy = Grid(local, seed=3, group=group, rows=shape[0], columns=shape[1])
            found = trained(strategy, model_of(local, name, dtype))
        except Exception as error:
            raise AssertionError(f"{name} on {kind}, {dtype}, {shape}") from error
        wrong += differences(found, held[name, kind, dtype], f"{name} on {kind} in {dtype} on {shape}", dtype)
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
        reference = trained(Single(graph, seed=3), model_of(graph, name, dtype))
        try:
            local = replicas(group, graph, kind, 4 if group.size == 2 else group.size)
            strategy = VertexCut(local, seed=3, group=group, exchange=exchange)
            found = trained(strategy, model_of(local, name, dtype))
        except Exception as error:
            raise AssertionError(f"{name} on {kind}, {dtype}") from error
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
