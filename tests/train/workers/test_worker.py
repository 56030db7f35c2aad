"""What is refused before workers start."""

from pathlib import Path

import pytest
from agree_jobs import told_of_difference
from ranks import run_ranks

from weft.config import make_recipe
from weft.errors import RecipeError
from weft.train import settings
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
