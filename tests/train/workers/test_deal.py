"""A run goes on with another number of workers: what they kept follows its nodes, or is refused by name."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deal_jobs
import pytest
import torch
from ranks import run_ranks
from torch import Tensor

from weft.comm.group import Group
from weft.config import make_recipe
from weft.errors import FormatError, InputError, RecipeError
from weft.events import read_events
from weft.train.workers.deal import check_workers, unpacked
from weft.train.workers.worker import prepare

PARTS = 4


LINKS = {"name": "link_prediction", "width": 4, "negatives": {"name": "uniform", "count": 2}}


def sections(epochs: int, embedding: dict[str, Any] | None = None, **strategy: Any) -> dict[str, Any]:
    learned = {} if embedding is None else {"embedding": embedding}
    return {
        "task": {} if embedding is None else LINKS,
        "data": {"name": "community", "nodes": 80, "classes": 3},
        "model": {"name": "sage", "hidden": 4, **learned},
        "strategy": {"partitioner": "hash", "parts": PARTS, **strategy},
        "train": {"epochs": epochs, "precision": "float64", "seed": 3, "checkpoint_every": 1},
    }


def run(out: Path, workers: int, epochs: int, **strategy: Any) -> set[str]:
    """Train on so many workers, from the start or from the last checkpoint; return what was refused."""
    given = sections(epochs, **strategy)
    prepare(make_recipe(given), out, workers=2)
    if workers == 1:
        return {deal_jobs.trained(Group.alone(), given, str(out))}
    return set(run_ranks(workers, deal_jobs.trained, given, str(out)))


def losses(out: Path) -> list[float]:
    return [event["loss"] for event in read_events(out) if event["event"] == "epoch"]


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "halo"},
        {"name": "control_variate", "fanout": 1, "batch_size": 20, "prepare": 0},  # with histories
        {"name": "sampled", "fanout": 2, "batch_size": 20, "prepare": 0, "embedding": {"width": 3}},
    ],
    ids=lambda strategy: strategy["name"],
)
def test_a_run_goes_on_with_any_number_of_workers(tmp_path: Path, strategy: dict[str, Any]) -> None:
    """Weights and states are the same bits; sums over other workers round differently from then on."""
    for workers, epochs in ((2, 1), (4, 2), (1, 3)):
        assert run(tmp_path / "moved", workers, epochs, **strategy) == {""}
    assert run(tmp_path / "whole", 1, 3, **strategy) == {""}
    assert losses(tmp_path / "moved") == pytest.approx(losses(tmp_path / "whole"), rel=1e-12)


def test_rows_of_a_halo_do_not_follow_and_are_named(tmp_path: Path) -> None:
    assert run(tmp_path, 2, 2, name="halo", exchange="stale") == {""}
    told = run(tmp_path, 3, 3, name="halo", exchange="stale")
    # another rank may first hear of the one that refused
    (said,) = [text for text in told if "is of the halo or the links of each of 2 workers" in text]
    assert "continue with --workers 2" in said
    assert run(tmp_path, 2, 3, name="halo", exchange="stale") == {""}


class _Kept:
    """The checkpoint of two workers that have the same tensors."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def count_ranks(self, saved: Any) -> int:
        return 2

    def load_rank(self, saved: Any, rank: int) -> dict[str, Tensor]:
        return self.state


@pytest.mark.parametrize("of_run", [False, True])
def test_rows_of_halos_that_are_equal_by_chance_are_not_the_runs(of_run: bool) -> None:
    layout = SimpleNamespace(state_of_run=of_run)
    strategy: Any = SimpleNamespace(workers=4, state_range=lambda name: None, state_sums=(), layout=layout)
    held: Any = _Kept({"rows": torch.zeros(5, 2), "count": torch.tensor([3])})
    saved: Any = SimpleNamespace(folder="run")
    if of_run:
        assert unpacked(held, saved, strategy, 0).keys() == {"rows", "count"}
    else:
        with pytest.raises(InputError, match="'rows' is of the halo or the links"):
            unpacked(held, saved, strategy, 0)


def test_rows_without_their_nodes_are_a_damaged_checkpoint() -> None:
    nodes = range(5)
    strategy: Any = SimpleNamespace(workers=4, state_range=lambda name: nodes, state_sums=())
    held: Any = _Kept({"rows": torch.zeros(5, 2)})
    saved: Any = SimpleNamespace(folder="run")
    with pytest.raises(FormatError, match=r"run: damaged.*@nodes"):
        unpacked(held, saved, strategy, 0)


def kept(name: str, parts: int | None = PARTS, **options: Any) -> dict[str, Any]:
    graph = {"workers": 2} | ({} if parts is None else {"parts": parts})
    return {"graph": graph, "strategy": {"name": name, **options}}


def test_workers_that_a_run_cannot_go_on_with_are_refused() -> None:
    for workers in (1, 2, 4):
        check_workers(kept("halo"), workers, "runs/a")
    for run_of_two, said in (
        (kept("halo"), "on 4 parts of the graph, and one worker holds a part; continue it with at most 4"),
        (kept("grid", rows=2, columns=1), "by 'grid', whose parts are made for them"),
        (kept("single", None), "by 'single', which is for one process"),
    ):
        with pytest.raises(RecipeError, match=said):
            check_workers(run_of_two, 5, "runs/a")
