"""What every store must do: rows in the order asked for, what was written, nothing outside, counts."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.cli.main import main
from weft.errors import GraphError, InputError, RecipeError
from weft.graph import Graph
from weft.stores import CachedStore, MemoryStore, MmapStore, SharedStore, SlicedStore, Store, stores
from weft.stores.open import check_store, open_store

NAMES = stores.names()
X = torch.arange(40.0).reshape(10, 4) / 3


def make(name: str, x: torch.Tensor, folder: Path) -> Store:
    if name == "mmap":
        MmapStore.write_rows(folder / "rows", x)
        return MmapStore(folder / "rows", mode="r+")
    if name == "shared":
        return SharedStore(f"contract-{uuid.uuid4().hex}", x)
    if name == "sliced":
        return SlicedStore(x, width=x.shape[1])
    if name == "cached":
        return CachedStore(MemoryStore(x), torch.arange(len(x)), capacity=4)
    kind: Any = stores[name]
    made: Store = kind(x.clone())
    return made


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with make(request.param, X.clone(), tmp_path) as made:
        yield made


def test_rows_come_in_the_order_asked_for(store: Store) -> None:
    ids = torch.tensor([3, 0, 9, 3])
    assert torch.equal(store.gather(ids), X[ids])
    assert torch.equal(store.gather(ids.int()), X[ids])
    assert store.gather(torch.zeros(0, dtype=torch.int64)).shape == (0, 4)
    assert torch.equal(store[2:5], X[2:5])
    assert torch.equal(store[torch.arange(10) > 7], X[8:])


def test_it_looks_like_its_matrix(store: Store) -> None:
    assert (tuple(store.shape), store.dtype, len(store), store.num_rows) == ((10, 4), torch.float32, 10, 10)
    assert (store.dim(), store.size(1), store.numel()) == (2, 4, 40)


def test_ids_outside_are_named(store: Store) -> None:
    for ids, message in (([10], "row 10 asked for"), ([-1], "row -1"), ([0.5], "expected ids")):
        with pytest.raises(GraphError, match=message):
            store.gather(torch.tensor(ids))


def test_what_is_written_is_read_and_the_last_of_two_stays(store: Store) -> None:
    ids, rows = torch.tensor([8, 1, 8]), torch.full((3, 4), 7.0) * torch.tensor([[1.0], [2.0], [3.0]])
    if not store.writable:
        with pytest.raises(InputError, match="reading only"):
            store.write(ids, rows)
        return
    store.write(ids, rows)
    assert store.gather(torch.tensor([1, 8, 0]))[:, 0].tolist() == [14.0, 21.0, X[0, 0].item()]
    with pytest.raises(GraphError, match="shape"):
        store.write(ids, rows[:2])


def test_it_counts_what_was_read(store: Store) -> None:
    store.gather(torch.tensor([9, 1]))
    store.gather(torch.tensor([2]))
    assert store.counters.rows == 3
    assert store.counters.to_dict()["rows"] == 3


def test_it_describes_itself_and_closes_twice(store: Store) -> None:
    told = store.describe()
    assert told["store"] in NAMES
    assert told["shape"] == [10, 4]
    store.close()
    store.close()


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_are_legal(name: str, tmp_path: Path) -> None:
    with make(name, torch.zeros(0, 4), tmp_path) as empty:
        assert empty.gather(torch.zeros(0, dtype=torch.int64)).shape == (0, 4)


@pytest.mark.parametrize("name", [name for name in NAMES if stores[name].by_recipe])
def test_a_recipe_opens_it_for_a_graph(name: str, tmp_path: Path) -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=10, x=X)
    MmapStore.write_rows(tmp_path / "rows", X)
    with SharedStore(f"contract-{uuid.uuid4().hex}", X) as shared:
        needed = {"mmap": {"path": str(tmp_path / "rows")}, "shared": {"store": shared.name}}
        made = open_store({"name": name, **needed.get(name, {})}, graph)
        assert isinstance(made, Store)
        with made:
            assert torch.equal(made[:], X)
            assert stores[name].on_workers, "one that serves a single process says so in its docs"
    page = (Path(__file__).resolve().parents[2] / "docs" / "features-larger-than-memory.md").read_text()
    assert f"`{name}`" in page


OWN = """
from weft.stores import Store

class Scaled(Store):
    def __init__(self, x, *, factor: float = 2.0):
        super().__init__(x.shape, x.dtype)
        self.x, self.factor = x, factor

    def _gather(self, ids):
        return self.factor * self.x[ids]

class NoStore:
    pass
"""


def test_a_store_of_the_users_own_is_named_in_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    name, out = f"{tmp_path / 'own.py'}:Scaled", tmp_path / "run"
    strategy = {"name": "sampled", "fanout": [3], "batch_size": 32}
    data = "name = 'community'\nnodes = 90\nfeatures = 6\n"
    (tmp_path / "recipe.toml").write_text(
        f"[data]\n{data}[model]\nname = 'sage'\nlayers = 1\n[train]\nepochs = 2\ndevice = 'cpu'\n"
        "[strategy]\nname = 'sampled'\nfanout = [3]\nbatch_size = 32\n"
        f"store = {{name = '{name}', factor = 0.5}}\n"
    )
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(out)]) == 0
    found = [event for event in weft.read_events(out) if event["event"] == "epoch"][-1]["loss"]
    graph = weft.datasets.open_dataset(name="community", nodes=90, features=6)
    halved = graph.with_data(x=0.5 * graph.x)
    settings: dict[str, Any] = {"epochs": 2, "layers": 1, "strategy": strategy, "device": "cpu"}
    assert found == weft.train(halved, "sage", **settings).loss != weft.train(graph, "sage", **settings).loss
    capsys.readouterr()
    for more, message in (
        (["--workers", "2"], "has the rows of one process; with --workers use one of cached, memory"),
        (["--set", "strategy.store.factor=much"], "strategy.store.factor: expected a number, got 'much'"),
        (["--set", f"strategy.store.name={tmp_path / 'own.py'}:NoStore"], "expected a subclass of Store"),
    ):
        assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "none"), *more]) == 2
        assert message in " ".join(capsys.readouterr().err.split()), more


def test_a_store_that_a_strategy_makes_is_not_named() -> None:
    for name in (name for name in NAMES if not stores[name].by_recipe):
        with pytest.raises(RecipeError, match="made by its strategy; use one of cached, memory"):
            check_store(name)


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_says_what_it_gives(name: str) -> None:
    assert (stores[name].__doc__ or "").strip()
