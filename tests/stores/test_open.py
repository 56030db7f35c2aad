"""Stores by the names of a recipe."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft.comm.group import Group
from weft.errors import InputError, RecipeError
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import make_shards
from weft.samplers import NeighborSampler
from weft.stores import CachedStore, MemoryStore, MmapStore, open_store
from weft.stores.open import by_rows, in_files

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
GRAPH = Graph.from_edges(
    torch.randint(30, (2, 90), generator=torch.Generator().manual_seed(1)),
    num_nodes=30,
    x=X,
    y=[0, 1] * 15,
    train_mask=torch.arange(30) < 10,
)


def test_names_and_tables_open_stores(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    path = str(tmp_path / "x.npy")
    assert torch.equal(open_store("memory", GRAPH)[:], X)
    assert (open_store({"name": "memory", "storage": "int8"}, GRAPH)[:] - X).abs().max() < 0.02
    assert isinstance(open_store({"name": "mmap", "path": path}, GRAPH), MmapStore)
    for ranker in ("out_degree", "importance", "random", "frequency"):
        spec = {"name": "cached", "path": path, "capacity": 0.5, "ranker": ranker}
        store = open_store(spec, GRAPH, NeighborSampler(GRAPH, [3]))
        assert isinstance(store, CachedStore)
        assert store.capacity == 15
        assert torch.equal(store[:], X)
    assert torch.equal(open_store({"name": "cached", "capacity": 3}, GRAPH)[:], X)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("memori", "did you mean 'memory'"),
        ("sliced", "made by its strategy"),
        ({"name": "memory", "storage": "int4"}, "storage: expected one of"),
        ({"name": "mmap"}, "store.path"),
        ({"name": "shared"}, "store.store"),
        ({"name": "memory", "storag": "int8"}, "did you mean 'storage'"),
        ({"name": "cached", "ranker": "degree"}, "no ranker .degree.; did you mean .out_degree"),
        ({"name": "cached", "ranker": "frequency"}, "needs a strategy that samples"),
    ],
)
def test_mistakes_are_told_in_one_line(spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_store(spec, GRAPH)


def test_a_shared_store_of_several_node_types_needs_their_fields() -> None:
    nodes = {kind: {"num_nodes": 2, "x": torch.eye(2)} for kind in ("author", "paper")}
    graph = Graph.from_types(nodes, {("author", "writes", "paper"): [[0, 1], [1, 0]]})
    spec, message = {"name": "shared", "store": "nowhere"}, r'several node types.*field = \{author = "x"\}'
    with pytest.raises(RecipeError, match=message):
        open_store(spec, graph)
    (shard,) = make_shards(graph, Assignment(torch.zeros(4, dtype=torch.int32), 1))
    with pytest.raises(RecipeError, match=message):
        open_store(spec, shard, group=Group.alone())


def test_rows_for_other_nodes_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[:7].numpy())
    with pytest.raises(InputError, match="7 rows, the graph 30 nodes"):
        open_store({"name": "mmap", "path": str(tmp_path / "x.npy")}, GRAPH)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("saved", [False, True])
def test_narrow_features_are_widened_where_they_are_read(
    tmp_path: Path, dtype: torch.dtype, saved: bool
) -> None:
    graph = GRAPH.with_data(x=X.to(dtype))
    if saved:
        graph.save(tmp_path / "g")
        graph = Graph.load(tmp_path / "g")
    x = by_rows(graph, None, torch.float32, opened=True).x
    assert isinstance(x, MmapStore if saved and dtype == torch.float16 else MemoryStore)
    assert (x.dtype, x.row_bytes) == (torch.float32, 8)
    assert torch.equal(x.gather(torch.tensor([7, 2])), X.to(dtype).float()[[7, 2]])


def test_what_was_changed_in_memory_is_not_read_from_the_file(tmp_path: Path) -> None:
    GRAPH.with_data(x=X.half()).save(tmp_path / "g")
    graph = Graph.load(tmp_path / "g")
    graph.x.mul_(2)  # in a copy of this process
    assert torch.equal(by_rows(graph, None, torch.float32).x[:], 2 * X.half().float())


def test_a_store_that_is_named_reads_narrow_features_too(tmp_path: Path) -> None:
    graph, half = GRAPH.with_data(x=X.half()), X.half().float()
    for spec in ("memory", {"name": "cached", "capacity": 7}):
        kept = by_rows(graph, spec, torch.float32)
        store = open_store(spec, kept)
        assert store.counters.rows == 0
        assert torch.equal(store[:], half)
    in_its_own_bits = {"name": "memory", "storage": "int8"}
    assert isinstance(by_rows(graph, in_its_own_bits, torch.float32).x, torch.Tensor)


def test_features_of_all_bits_stay_a_matrix() -> None:
    assert by_rows(GRAPH, None, torch.float32) is GRAPH
    half = GRAPH.with_data(x=X.half())
    assert by_rows(half, None, torch.float16) is half


def test_features_that_lie_in_files_are_read_from_them_in_their_own_type(tmp_path: Path) -> None:
    graph = GRAPH.with_data(x=X.half())
    assert in_files(graph) is graph
    graph.save(tmp_path / "g")
    x = in_files(Graph.load(tmp_path / "g")).x
    assert isinstance(x, MmapStore)
    assert (x.dtype, x[:].tolist()) == (torch.float16, X.half().tolist())
