"""Who holds which part: by a file beside the parts, by measured links, and what that must not change."""

import json
from pathlib import Path

import pytest
import torch
from placed_jobs import dealt_in_all_ways
from ranks import run_ranks

import weft
from weft import format
from weft.cli.main import main
from weft.comm.group import Group
from weft.config import make_recipe
from weft.errors import FormatError, RecipeError
from weft.train.resolve import resolve
from weft.train.workers.placed import DEAL, arrange, check_placement, dealt, dealt_in


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Four parts of a graph on disk."""
    weft.datasets.open_dataset(name="community", nodes=80, features=4, classes=3).save(tmp_path / "graph")
    command = ["partition", str(tmp_path / "graph"), "--parts", "4", "--name", "hash"]
    assert main([*command, "--out", str(tmp_path / "parts")]) == 0
    return tmp_path / "parts"


def test_a_deal_changes_who_holds_a_part_and_nothing_of_what_is_drawn_or_learned(
    parts: Path, tmp_path: Path
) -> None:
    found = run_ranks(2, dealt_in_all_ways, str(parts), str(tmp_path / "runs"))[0]
    usual, deal = found["usual"]
    assert deal is None
    assert found["dealt"][1] == [0, 1, 1, 0]
    # Gradients of workers are added in another order, and nothing else is another.
    assert found["dealt"][0] == pytest.approx(usual, rel=1e-12)
    assert found["turned"][1] == [1, 1, 0, 0]
    assert found["turned"][0] == found["sampled"][0]  # of two workers a sum is the same either way
    assert found["continued"][1] == [0, 1, 1, 0]
    assert len(found["continued"][0]) == 1
    assert found["continued"][0][0] < usual[-1]
    assert sorted(found["measured"][1]) == [0, 0, 1, 1]
    assert found["measured"][0] == pytest.approx(usual, rel=1e-12)
    assert len(json.loads((tmp_path / "runs" / "measured" / "links.json").read_text())["bytes_a_second"]) == 2


def test_who_holds_a_part_is_decided_without_reading_all_of_it(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    read = format.read_directory

    def watched(path: Path, verify: bool = True) -> object:
        asked.append(verify)
        return read(path, verify)

    monkeypatch.setattr(format, "read_directory", watched)
    assert arrange(parts, torch.full((1, 1), torch.inf), Group.alone()) == [0, 0, 0, 0]
    assert asked == [False] * 4


def test_a_file_for_other_workers_is_left_and_a_damaged_one_is_refused(parts: Path) -> None:
    file = parts / DEAL
    assert dealt(parts, 2) == [0, 0, 1, 1]
    file.write_text(json.dumps({"workers": 2, "part_rank": [1, 0, 0, 1]}))
    assert (dealt(parts, 2), dealt_in(parts, 4)) == ([1, 0, 0, 1], None)
    for wrong in ([1, 0, 0], [0, 0, 0, 0], [0, 1, 2, 0]):
        file.write_text(json.dumps({"workers": 2, "part_rank": wrong}))
        with pytest.raises(FormatError, match="a part for each; deal them anew"):
            dealt(parts, 2)
    file.write_text("{")
    with pytest.raises(FormatError, match="not valid JSON"):
        dealt(parts, 2)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"name": "vertex_cut"}, "'vertex_cut' says itself who holds which part; use one of"),
        ({"name": "sampled", "samplers": 1}, "workers that only sample know no measured links"),
    ],
)
def test_placement_that_cannot_be_is_refused(strategy: dict[str, object], said: str) -> None:
    sections = {"data": {"name": "community"}, "strategy": strategy, "train": {"placement": "measured"}}
    with pytest.raises(RecipeError, match=said):
        check_placement(resolve(make_recipe(sections), workers=2), 2)


def test_parts_that_move_by_themselves_are_not_placed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["train", "--workers", "1:2", "--set=train.placement=measured", f"--out={tmp_path / 'run'}"]
    assert main(command) == 2
    assert "train.placement: parts of workers that come and go move by themselves" in capsys.readouterr().err
