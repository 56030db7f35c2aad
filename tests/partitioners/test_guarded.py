"""Running partitioners in a child: whatever happens to it becomes one clear line."""

import textwrap
from pathlib import Path

import pytest
import torch

import weft
from weft.errors import PartitionError, RecipeError, UnknownName
from weft.graph import Graph
from weft.partitioners import guarded, partition, partitioners
from weft.partitioners.guarded import fill_empty, verify

RING = Graph.from_edges([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])

BROKEN = """
import os, time, torch
from weft.errors import GraphError
from weft.partitioners import Partitioner, partitioners

class Broken(Partitioner):
    def assign(self, graph, num_parts):
        return self.act(graph)

def add(name):
    def enter(act):
        partitioners.add(name)(type(name, (Broken,), {"act": act, "__module__": __name__}))
    return enter

@add("test-crash")
def crash(self, graph):
    print("METIS: input error", flush=True)
    os.abort()

@add("test-killed")
def killed(self, graph):
    os.kill(os.getpid(), 9)

@add("test-endless")
def endless(self, graph):
    time.sleep(60)

@add("test-raises")
def raises(self, graph):
    raise ZeroDivisionError("edges %\\n100")

@add("test-refuses")
def refuses(self, graph):
    raise GraphError(f"{graph.num_nodes} nodes are too few")

@add("test-rubbish")
def rubbish(self, graph):
    return torch.tensor([0, 1, 2, 99, 0, -4])

@add("test-lopsided")
def lopsided(self, graph):
    return torch.zeros(6, dtype=torch.int64)
"""


@pytest.fixture(scope="module", autouse=True)
def broken(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder: Path = tmp_path_factory.mktemp("broken")
    (folder / "broken_partitioners.py").write_text(textwrap.dedent(BROKEN))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        import broken_partitioners  # type: ignore[import-not-found]  # noqa: F401

        yield
        for name in [name for name in partitioners.names() if name.startswith("test-")]:
            del partitioners._entries[name]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("test-crash", r"'test-crash' crashed \(SIGABRT\): METIS: input error; try another"),
        ("test-killed", "was killed, most likely for lack of memory"),
        ("test-raises", r"failed: ZeroDivisionError: edges % 100; try another"),
        ("test-refuses", "^6 nodes are too few$"),
        ("test-rubbish", r"left 2 of 6 outside 0 … 2 \(the first: number 3 in part 99\)"),
    ],
)
def test_a_broken_partitioner_is_one_line(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        partition(RING, 3, name=name)
    assert "\n" not in str(caught.value)


def test_a_partitioner_that_does_not_end_is_stopped() -> None:
    with pytest.raises(PartitionError, match=r"stopped after 0\.5 s"):
        partition(RING, 3, name="test-endless", timeout=0.5)


def test_a_lopsided_answer_is_repaired_and_the_repair_is_told() -> None:
    made = partition(RING, 3, name="test-lopsided")
    assert sorted(torch.bincount(made.parts).tolist()) == [2, 2, 2]
    assert made.quality is not None
    assert made.quality.moved == 4


def test_one_part_and_more_parts_than_nodes_need_no_partitioner() -> None:
    assert partition(RING, 1, name="test-crash").parts.tolist() == [0] * 6
    assert partition(RING, 9, name="test-crash").parts.tolist() == [0, 1, 2, 3, 4, 5]


def test_mistakes_in_the_call_are_told_at_once() -> None:
    with pytest.raises(UnknownName, match="did you mean 'metis'"):
        partition(RING, 2, name="mtis")
    with pytest.raises(
        RecipeError, match=r"unknown key partitioner 'metis'\.objectiv; did you mean 'objective'"
    ):
        partition(RING, 2, objectiv="cut")
    with pytest.raises(RecipeError, match="expected one of 'volume', 'cut', got 'edges'"):
        partition(RING, 2, objective="edges")
    with pytest.raises(RecipeError, match="at least 1, got 0"):
        partition(RING, 0)


def test_empty_parts_are_filled_from_the_largest() -> None:
    parts, moved = fill_empty(torch.tensor([0, 0, 0, 0, 2, 0]).int(), 3)
    assert torch.bincount(parts, minlength=3).tolist() == [3, 2, 1]
    assert moved == 2
    parts, moved = fill_empty(torch.tensor([0, 2]).int(), 4)
    assert (parts.tolist(), moved) == ([0, 2], 0)


def test_floats_and_too_few_are_not_parts() -> None:
    with pytest.raises(PartitionError, match=r"gave torch.int32 of shape \(5,\), expected 6"):
        verify(torch.zeros(5, dtype=torch.int32), 6, 2, name="x")
    with pytest.raises(PartitionError, match="float32"):
        verify(torch.zeros(3), 3, 2, name="x")


def test_a_child_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "LOOK", 0.01)
    graph = weft.datasets.datasets["community"](nodes=20_000, degree=10.0, features=2)
    seen: list[float] = []
    partition(graph, 4, name="ldg", passes=20, watch=seen.append)
    assert seen == sorted(seen)
    assert len({share for share in seen if 0 < share < 1}) > 3


def test_a_child_that_is_watched_is_stopped_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "LOOK", 0.05)
    with pytest.raises(PartitionError, match=r"stopped after 0\.5 s"):
        partition(RING, 2, name="test-endless", timeout=0.5, watch=lambda _: None)
