"""What is refused before workers start."""

from pathlib import Path

import pytest
import torch
from agree_jobs import told_of_difference
from ranks import run_ranks

from weft.config import make_recipe
from weft.errors import RecipeError
from weft.graph.parts.partition import FILE, write_partition
from weft.train import settings
from weft.train.resolve import resolve
from weft.train.workers import worker


@pytest.mark.parametrize(
    ("device", "strategy", "said"),
    [
        ("cuda:0", {}, "'cuda:0' would have all workers share one GPU; 'cuda' gives them GPUs in turn"),
        ("cuda", {"exchange": "stale"}, "is for strategy 'halo' with exchange 'exact'"),
        ("cuda", {"name": "grid"}, "is for strategy 'halo' with exchange 'exact'"),
    ],
)
def test_a_gpu_that_several_workers_cannot_use(
    device: str, strategy: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a machine with GPUs: the devices are looked at before the workers.
    monkeypatch.setattr(settings.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(settings.torch.cuda, "device_count", lambda: 2)
    sections = {"data": {"name": "community"}, "strategy": strategy, "train": {"device": device}}
    with pytest.raises(RecipeError) as caught:
        worker.prepare(make_recipe(sections), tmp_path, workers=2)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "named"), [("recipe", "[train]"), ("versions", "versions"), ("model", "model")]
)
def test_ranks_that_were_started_with_something_else_are_refused_by_all(
    what: str, named: str, tmp_path: Path
) -> None:
    sections = {"data": {"name": "community", "nodes": 40}, "train": {"epochs": 1}}
    recipe = make_recipe(sections)
    worker.prepare(recipe, tmp_path, workers=2)
    told = run_ranks(2, told_of_difference, str(tmp_path), what, sections)
    assert [f"ranks disagree on {named}: rank 0 has" in said for said in told] == [True, True]


def test_ranks_that_have_parts_of_other_cuts_are_refused_by_all(tmp_path: Path) -> None:
    sections = {"data": {"name": "community", "nodes": 40}, "train": {"epochs": 1}}
    recipe = make_recipe(sections)
    for rank in ("0", "1"):
        worker.prepare(recipe, tmp_path / rank, workers=2)
    made = tmp_path / "1" / "partition"
    files = {path.name: path.read_bytes() for path in made.iterdir() if path.is_file() and path.name != FILE}
    graph = resolve(recipe).open()
    write_partition(made, graph, torch.arange(graph.num_nodes) % 2, overwrite=True, files=files)
    told = run_ranks(2, told_of_difference, str(tmp_path), "parts", sections)
    assert ["ranks disagree on [graph]: rank 0 has" in said for said in told] == [True, True], told
