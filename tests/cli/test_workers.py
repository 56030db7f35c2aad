"""Commands with several workers: what is refused before any of them starts."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.cli.workers import count_workers
from weft.config import Recipe
from weft.errors import RecipeError
from weft.train.resolve import resolve


def _options(out: Path, workers: int | None) -> Namespace:
    return Namespace(workers=workers, parts=None, max_restarts=0, resume=True, out=str(out))


@pytest.fixture
def run_of_two(tmp_path: Path) -> Path:
    told = {"format": 1, "status": "stopped", "recipe": {"graph": {"workers": 2}}}
    (tmp_path / "run.json").write_text(json.dumps(told))
    return tmp_path


def test_a_run_is_continued_with_the_workers_it_had(run_of_two: Path) -> None:
    assert count_workers(_options(run_of_two, None)) == 2
    assert count_workers(_options(run_of_two, 2)) == 2


def test_another_number_of_workers_is_taken_up_to_the_parts_there_are(run_of_two: Path) -> None:
    told = {"status": "done", "recipe": {"graph": {"workers": 2, "parts": 4}, "strategy": {"name": "halo"}}}
    (run_of_two / "run.json").write_text(json.dumps(told))
    assert [count_workers(_options(run_of_two, each)) for each in (1, 3, 4)] == [1, 3, 4]
    with pytest.raises(RecipeError, match=r"--workers 5: .* was trained with 2, on 4 parts of the graph"):
        count_workers(_options(run_of_two, 5))


@pytest.mark.parametrize("key", ["exchange", "partitioner"])
def test_options_of_several_workers_in_one_process_tell_what_to_add(key: str) -> None:
    with pytest.raises(RecipeError, match=rf"strategy\.{key}: one process .* add --workers N"):
        resolve(Recipe(strategy={key: "sampled"}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--max-restarts", "2"], "--max-restarts: one process is not started again; add --workers"),
        (["selftest", "draws", "--cover"], "--cover are for: weft selftest equivalence"),
        (["selftest", "--parts", "2"], "--parts and --cover are for: weft selftest equivalence"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
