"""`weft.train` on several processes: what is refused, what comes back, and how it ends."""

import fcntl
import json
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from own_code import Net, confidence, focal
from torch import nn

import weft
from weft.comm.group import Group
from weft.errors import InputError, WorkerLost
from weft.events import dumps
from weft.train.resolve import Resolved
from weft.train.saved.run_folder import read_run
from weft.train.settings import Settings
from weft.train.workers import team
from weft.train.workers.team import team_size

HASH = {"name": "halo", "partitioner": "hash"}


class Stumbles(Net):
    """Fails on the second worker."""

    def forward(self, blocks: Any, x: Any) -> Any:
        if os.environ.get("RANK") == "1":
            raise ArithmeticError("no such number")
        return super().forward(blocks, x)


@pytest.fixture
def small() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=60, degree=6, classes=3, features=8, seed=1)


def test_a_model_comes_back_trained_as_in_one_process_and_leaves_a_run(
    small: weft.Graph, tmp_path: Path
) -> None:
    weighed = nn.MultiMarginLoss(weight=torch.tensor([1.0, 2.0, 0.5]).double())  # whose tensor travels, too
    given: dict[str, Any] = {"epochs": 2, "precision": "float64", "loss": weighed}
    torch.manual_seed(0)
    model, twin = Net(8, 3, hidden=4), Net(8, 3, hidden=4)
    twin.load_state_dict(model.state_dict())
    alone = weft.train(small, twin, **given)
    told: list[str] = []
    out = tmp_path / "run"
    both = weft.train(
        small, model, workers=2, out=out, strategy=HASH, progress=lambda e: told.append(e["event"]), **given
    )
    assert both.model is model
    assert both.loss == pytest.approx(alone.loss, rel=1e-9)
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=0)
    assert told.count("epoch") == 2
    assert (out / "report.html").exists()
    run = read_run(out)
    assert run["status"] == "done"
    assert run["recipe"]["model"]["class"] == "own_code:Net"


@pytest.mark.slow
def test_a_run_with_workers_is_continued(small: weft.Graph, tmp_path: Path) -> None:
    given: dict[str, Any] = {"precision": "float64", "workers": 2, "strategy": HASH}
    whole = weft.train(small, "own_code:Net", epochs=4, **given)
    weft.train(small, "own_code:Net", epochs=2, out=tmp_path / "run", **given)
    further = weft.train(small, "own_code:Net", epochs=4, out=tmp_path / "run", resume=True, **given)
    assert (further.epochs, further.loss) == (4, whole.loss)


def test_workers_stop_where_they_are_asked_to_and_fewer_go_on_with_their_parts(
    small: weft.Graph, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"precision": "float64", "out": tmp_path / "run", "eval_every": 100}
    begun: dict[str, Any] = {**given, "workers": 2, "strategy": HASH, "epochs": 100_000}
    stopped = weft.train(small, "own_code:Net", stop=lambda: True, hidden=4, **begun)
    assert stopped.stopped == "interrupted"
    assert 1 <= stopped.epochs < 100_000
    epochs = stopped.epochs + 2
    resumed: dict[str, Any] = {**given, "epochs": epochs, "resume": True, "hidden": 4}
    with pytest.raises(InputError, match="trained with 2, on 2 parts of the graph"):
        weft.train(small, "own_code:Net", workers=3, strategy=HASH, **resumed)
    with pytest.raises(InputError, match="has 2 parts, and keeps them"):
        weft.train(small, "own_code:Net", strategy=HASH, parts=4, **resumed)
    further = weft.train(small, "own_code:Net", strategy=HASH, **resumed)
    whole = weft.train(small, "own_code:Net", epochs=epochs, precision="float64", eval_every=100, hidden=4)
    assert (further.epochs, further.workers) == (epochs, 1)
    assert further.loss == pytest.approx(whole.loss, rel=1e-9)


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_after_their_epoch_and_is_raised(small: weft.Graph, tmp_path: Path) -> None:
    began = threading.Event()
    given: dict[str, Any] = {"workers": 2, "strategy": HASH, "epochs": 100_000, "eval_every": 100}

    def interrupt() -> None:
        assert began.wait(200)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        weft.train(
            small,
            "own_code:Net",
            out=tmp_path / "run",
            progress=lambda event: began.set() if event["event"] == "epoch" else None,
            **given,
        )
    thread.join()
    run = read_run(tmp_path / "run")
    assert run["status"] == "interrupted"
    assert run["summary"]["epochs"] >= 1


def test_a_worker_that_fails_is_named_with_its_cause(
    small: weft.Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerLost, match="rank 1 raised ArithmeticError: no such number"):
        weft.train(small, Stumbles(8, 3), workers=2, strategy=HASH, epochs=1)
    assert time.monotonic() - began < 200
    assert "in forward" in capfd.readouterr().err  # the traceback of the worker


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": lambda o, y: focal(o, y)}, "loss: workers cannot find"),
        ({"metrics": {"sure": lambda o, y: confidence(o, y)}}, "metrics: sure: workers cannot find"),
        ({"model": "local"}, "is not found in a module by that name; name its class"),
        ({"model": "lambda"}, "act is <lambda>, which no module holds by name"),
        ({"model": "hooks"}, "it has hooks"),
        ({"options": {"hidden": "wide"}, "model": "own_code:Net"}, "model.hidden: expected a whole number"),
        ({"strategy": "single"}, "'single' trains in one process"),
        ({"trace": True}, "trace needs the folder of the run: out="),
        ({"workers": 61}, "the graph has 60 nodes, too few for 61 parts"),
    ],
)
def test_what_workers_cannot_be_told_is_one_line_before_any_starts(
    small: weft.Graph, options: dict[str, Any], message: str
) -> None:
    class Local(Net):
        pass

    model: Any = Net(8, 3)
    kind = options.pop("model", None)
    if kind == "lambda":
        model.act = lambda h: h
    elif kind == "hooks":
        model.register_forward_hook(print)
    else:
        model = {"local": Local(8, 3), None: model}.get(kind, kind)
    with pytest.raises(InputError) as caught:
        weft.train(small, model, **{"workers": 2, "epochs": 1, "strategy": HASH, **options})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_call_in_code_that_a_worker_imports_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_FAILURES", "/nowhere")
    with pytest.raises(InputError, match="put the call under `if __name__ =="):
        team_size(None)


def test_torchrun_decides_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert team_size(None) == team_size(4) == 4
    with pytest.raises(InputError, match="torchrun started 4 processes, 2 are asked for; leave it out"):
        team_size(2)


def test_a_rank_of_torchrun_writes_nothing_into_a_folder_that_another_run_holds(
    small: weft.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(team, "_group", lambda device: Group.alone())
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="is in use: another process trains in it"):
            weft.train(small, Net(8, 3), out=tmp_path, strategy=HASH, epochs=1)
        assert [item.name for item in tmp_path.iterdir()] == [".lock"]


def test_a_metric_that_was_no_number_comes_back_as_nan(small: weft.Graph, tmp_path: Path) -> None:
    alone = weft.train(small, "own_code:Net", epochs=1)
    told = {**json.loads(dumps(alone.to_dict())), "metrics": {"test": {"accuracy": None}}}
    resolved = Resolved({}, "own_code:Net", {}, "halo", {}, Settings(), graph=small)
    summary = team._summary(told, resolved, tmp_path, torch.device("cpu"))
    assert math.isnan(summary.metrics["test"]["accuracy"])
    assert isinstance(summary.model, Net)


def test_a_model_that_cannot_train_is_one_line(small: weft.Graph) -> None:
    model = Net(8, 3).requires_grad_(False)
    with pytest.raises(InputError, match=r"^model: it has no parameters that train; "):
        weft.train(small, model, epochs=1)
