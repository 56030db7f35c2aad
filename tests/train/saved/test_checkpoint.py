"""Checkpoints come back as they were, whole or not at all, and say what is wrong with a damaged one."""

import json
import pickle
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from weft.errors import FormatError, InputError
from weft.train.saved.checkpoint import (
    Checkpoints,
    assign_weights,
    load_weights,
    optimizer_state,
    restore_optimizer,
    save_weights,
    weights_of,
)


def groups(value: float = 1.0) -> dict[str, dict[str, Tensor]]:
    return {"model": {"weight": torch.full((2, 3), value)}, "best": {}}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    tensors = {
        "model": {"a": torch.randn(3, 2), "b": torch.arange(4), "c": torch.ones(2, dtype=torch.bfloat16)},
        "random": {"cpu": torch.get_rng_state()},
    }
    state = {"loss": 0.1 + 0.2, "best": {"epoch": 3, "value": None}}
    checkpoints.save(7, tensors, state)
    held = checkpoints.load()
    assert held is not None
    assert held.epoch == 7
    assert held.state == state
    for group, named in tensors.items():
        for name, value in named.items():
            assert torch.equal(held.tensors[group][name], value)


def test_there_is_none_before_the_first(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).load() is None


def test_only_the_latest_is_kept_and_abandoned_ones_are_swept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / ".epoch-000002.host-1.partial").mkdir()
    checkpoints.save(1, groups(), {})
    checkpoints.save(2, groups(2.0), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000002", "latest"]


def test_killed_while_the_same_moment_is_saved_again_the_one_before_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, groups(1.0), {})
    with subprocess.Popen(["true"]) as gone:  # a writer that is no more
        pass
    tag = f".epoch-000001.{socket.gethostname()}-{gone.pid}.x"
    (tmp_path / "epoch-000001").rename(tmp_path / f"{tag}.old.partial")
    (tmp_path / f"{tag}.partial").mkdir()
    held = checkpoints.load()
    assert held is not None
    assert held.epoch == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000001", "latest"]


def test_a_folder_that_latest_does_not_name_yet_does_not_count(tmp_path: Path) -> None:
    # Killed between the two renames: the checkpoint before is continued, and the folder written over.
    checkpoints, other = Checkpoints(tmp_path / "run"), Checkpoints(tmp_path / "other")
    checkpoints.save(1, groups(1.0), {})
    other.save(2, groups(2.0), {})
    (tmp_path / "other" / "epoch-000002").rename(tmp_path / "run" / "epoch-000002")
    held = checkpoints.load()
    assert held is not None
    assert held.tensors["model"]["weight"][0, 0] == 1.0
    checkpoints.save(2, groups(3.0), {})
    held = checkpoints.load()
    assert held is not None
    assert held.tensors["model"]["weight"][0, 0] == 3.0


def test_latest_names_a_folder_only_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, groups(1.0), {})

    def killed(*_: object, **__: object) -> None:
        assert (tmp_path / "latest").read_text() == "epoch-000001\n"
        raise KeyboardInterrupt

    monkeypatch.setattr("weft.train.saved.checkpoint.write_directory", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(2, groups(2.0), {})
    held = checkpoints.load()
    assert held is not None
    assert held.epoch == 1


def test_what_a_worker_leaves_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, groups(), {"ranks": [checkpoints.save_rank(1, 0, {"a": torch.ones(2)})]})
    saved = checkpoints.load()
    assert saved is not None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FormatError, match="No space left on device"):
        checkpoints.save_rank(1, 0, {"a": torch.zeros(2)})
    assert checkpoints.load_rank(saved, 0)["a"].tolist() == [1, 1]
    assert [path.name for path in (tmp_path / "ranks-000001").iterdir()] == ["exchange-rank00000.safetensors"]


def test_without_latest_the_newest_whole_one_counts(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, {"model": {"w": torch.ones(2)}}, {})
    shutil.copytree(tmp_path / "epoch-000003", tmp_path / "kept")
    checkpoints.save(4, {"model": {"w": torch.ones(2)}}, {}, step=2)
    (tmp_path / "kept").rename(tmp_path / "epoch-000003")
    (tmp_path / "latest").unlink()
    found = checkpoints.load()
    assert found is not None
    assert found.folder.name == "epoch-000004-000002"
    (found.folder / "tensors.safetensors").write_bytes(b"cut")
    found = checkpoints.load()
    assert found is not None
    assert found.epoch == 3
    shutil.rmtree(tmp_path / "epoch-000003")
    with pytest.raises(FormatError, match="epoch-000004"):
        checkpoints.load()


def test_an_error_while_writing_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, groups(1.0), {})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FormatError, match="No space left on device"):
        checkpoints.save(2, groups(2.0), {})
    monkeypatch.undo()
    held = checkpoints.load()
    assert held is not None
    assert held.epoch == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000001", "latest"]


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, groups(), {"loss": 1.0})
    for name in ("tensors.safetensors", "manifest.json"):
        path = tmp_path / "epoch-000001" / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
        with pytest.raises(FormatError, match=name):
            checkpoints.load()
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
    assert checkpoints.load() is not None


def test_a_truncated_or_missing_file_is_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, groups(), {})
    path = tmp_path / "epoch-000001" / "tensors.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(FormatError, match=r"tensors\.safetensors"):
        checkpoints.load()
    path.unlink()
    with pytest.raises(FormatError, match=r"tensors\.safetensors"):
        checkpoints.load()


@pytest.mark.parametrize("name", ["../../etc", "/etc", "epoch-1/../..", "", "x" * 200])
def test_latest_cannot_point_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "latest").write_text(name)
    with pytest.raises(FormatError, match="expected the name of a checkpoint"):
        Checkpoints(tmp_path).load()


def test_a_pickle_in_the_place_of_weights_is_refused_and_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(FormatError, match="not a safetensors file"):
        load_weights(path, nn.Linear(2, 2))
    assert not (tmp_path / "sprung").exists()


def test_weights_of_another_model_are_refused_by_name() -> None:
    wide, narrow = nn.Linear(4, 8), nn.Linear(4, 6)
    with pytest.raises(InputError) as caught:
        assign_weights(narrow, weights_of(wide), where="checkpoint x")
    assert str(caught.value) == (
        "checkpoint x is of another model: bias is [8], the model's is [6]; "
        "weight is [8, 4], the model's is [6, 4]"
    )
    with pytest.raises(InputError, match="bias is absent, the model's is"):
        assign_weights(wide, {"weight": wide.weight}, where="x")


def test_weights_travel_to_a_plain_module(tmp_path: Path) -> None:
    here, there = nn.Linear(3, 2), nn.Linear(3, 2)
    save_weights(tmp_path / "m.safetensors", here)
    load_weights(tmp_path / "m.safetensors", there)
    assert torch.equal(here.weight, there.weight)


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    save_weights(tmp_path / "m.safetensors", model)
    load_weights(tmp_path / "m.safetensors", model)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_an_optimiser_continues_bit_for_bit(kind: type[torch.optim.Optimizer]) -> None:
    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.01, **options)  # type: ignore[call-arg]
    steps(model, optimizer, 3)
    tensors, rest = optimizer_state(optimizer)
    other = nn.Linear(4, 3)
    assign_weights(other, weights_of(model), where="x")
    again = kind(other.parameters(), lr=0.5, **options)  # type: ignore[call-arg]
    restore_optimizer(again, tensors, json.loads(json.dumps(rest)))
    steps(model, optimizer, 4)
    steps(other, again, 4)
    assert torch.equal(model.weight, other.weight)


def test_the_files_of_workers_come_back_checked_and_go_with_their_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"  # which no worker has made yet
    checkpoints = Checkpoints(folder)
    for epoch in (1, 2):
        entries = [checkpoints.save_rank(epoch, rank, {"a": torch.full((2,), rank)}) for rank in (0, 1)]
        checkpoints.save(epoch, groups(), {"ranks": entries})
    assert sorted(path.name for path in folder.iterdir()) == ["epoch-000002", "latest", "ranks-000002"]
    saved = checkpoints.load()
    assert saved is not None
    assert checkpoints.count_ranks(saved) == 2
    assert checkpoints.load_rank(saved, 1)["a"].tolist() == [1, 1]
    file = folder / "ranks-000002" / "exchange-rank00001.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(FormatError, match="not what the checkpoint's manifest says; restore"):
        checkpoints.load_rank(saved, 1)
    file.unlink()
    with pytest.raises(FormatError, match=r"cannot read .*rank00001"):
        checkpoints.load_rank(saved, 1)


@pytest.mark.parametrize("place", ["ranks-000001", "ranks-000001/exchange-rank00000.safetensors"])
def test_no_link_is_followed_to_the_files_of_workers(tmp_path: Path, place: str) -> None:
    checkpoints = Checkpoints(tmp_path / "run")
    checkpoints.save(1, groups(), {"ranks": [checkpoints.save_rank(1, 0, {"a": torch.ones(2)})]})
    saved = checkpoints.load()
    assert saved is not None
    (tmp_path / "run" / place).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="a symbolic link; weft reads only files"):
        checkpoints.load_rank(saved, 0)


@pytest.mark.parametrize("ranks", ["two", [3], [{"file": "a"}], {"0": {}}])
def test_files_of_workers_that_are_told_oddly_are_refused(tmp_path: Path, ranks: object) -> None:
    Checkpoints(tmp_path).save(1, {}, {"ranks": ranks})
    with pytest.raises(FormatError, match="ranks"):
        Checkpoints(tmp_path).load()
