"""What a run takes is told before it begins, and refused where it cannot fit."""

from pathlib import Path
from typing import Any

import pytest
from bucket_jobs import TASK, typed_links

import weft
from weft.errors import DataNote, RecipeError
from weft.strategies.buckets import room as rooms
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.room import room_of

GIB = 2**30


def freebase(**changes: Any) -> rooms.Room:
    """Return what Freebase86m's shape takes: 86 M rows of 100, 338 M facts."""
    division = Division(["entity"], [0, 86_054_151], changes.pop("partitions", 16))
    shape = {"buffer": 4, "arriving": 1, "batch": 50_000, "columns": 2_000, **changes}
    return room_of(division, 100, 338_586_276, **shape)


def test_tables_of_freebase_are_counted_by_hand() -> None:
    room, table = freebase(), 86_054_151 * 101 * 4
    assert sum(room.disk.values()) == 3 * table + 86_054_151 * 400 + 338_586_276 * 12
    largest = -(-86_054_151 // 16) * 404
    assert room.passes == 120 * largest
    steps = 50_000 * (2 * 2_000 + 16 * 100) * 4
    in_buckets = 2 * 338_586_276 // 256 * 100
    assert room.memory == {"partitions": 6 * largest, "a step": steps, "edges of a bucket": in_buckets}
    narrow = room_of(Division(["entity"], [0, 1000], 4), 1, 2**23, buffer=2, arriving=1, batch=1, columns=1)
    assert narrow.memory["sorting edges"] == 2**20 * 160 + 8 * 1000, "a piece of them at once"
    whole = freebase(partitions=1)
    assert whole.memory["partitions"] == table
    assert whole.passes == 0
    held = freebase(partitions=4, buffer=4, batch=100_000).memory["partitions"]
    assert held == 4 * -(-86_054_151 // 4) * 404, "nothing comes and goes"


def train(out: Path | None = None) -> Any:
    options = {"name": "buckets", "partitions": 4, "batch": 40, "chunk": 20}
    given = {"optimizer": "adagrad", "epochs": 1, "task": TASK, "strategy": options}
    return weft.train(typed_links(), weft.nn.NoLayers(), out=out, **given)


def test_a_run_that_cannot_fit_is_refused_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(rooms, "free_memory", lambda: 1000)
    with pytest.raises(RecipeError, match=r"1000 bytes of memory are free; use more partitions") as raised:
        train(run)
    assert "\n" not in str(raised.value)
    monkeypatch.undo()
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(rooms.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(RecipeError, match=r"1000 bytes of the disk are free at .*; free some"):
        train(run)
    assert not run.exists()


def test_a_run_of_partitions_is_told_what_it_takes_and_keeps_to_it(tmp_path: Path) -> None:
    with pytest.warns(DataNote, match=r"buckets: memory .* \(.*\); disk .* \(versions of rows"):
        train(tmp_path / "run")
    room = room_of(Division(["a", "b"], [0, 40, 70], 4), 6, 352, buffer=2, arriving=1, batch=40, columns=70)
    kept = sum(path.stat().st_size for path in (tmp_path / "run" / "tables").glob("*.rows"))
    assert 0 < kept <= room.disk["versions of rows"]
