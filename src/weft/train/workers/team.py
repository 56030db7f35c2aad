"""`weft.train` on several processes: those that torchrun started, or workers that it starts itself.

Workers are told the model by name, or as plain values and tensors, and import the user's code; what they say
comes back as events and files. Under torchrun every rank runs the user's script, and `weft.train` in it is
the place where they meet.
"""

import atexit
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import weft
from weft.code import name_of
from weft.comm.failure import INTERRUPTED, JOB_PREFIX, is_worker, launched, seconds
from weft.comm.group import Group
from weft.comm.launch import run_workers
from weft.comm.rendezvous import RankPlace
from weft.comm.scratch import scratch
from weft.comm.signals import stop_requests
from weft.errors import InputError, WorkerLost
from weft.events import dumps
from weft.layers.base import GraphInfo
from weft.tasks.base import put_head
from weft.train.model import build_model, ready
from weft.train.resolve import Resolved
from weft.train.saved.checkpoint import Tensors, load_weights, to_bytes
from weft.train.saved.claim import claimed
from weft.train.saved.run_folder import check_folder, command_line, end_run, holds_run
from weft.train.saved.summary import Summary
from weft.train.trainer import Place
from weft.train.user.followed import own_of
from weft.train.user.portable import describe, describe_value
from weft.train.workers.run_parts import read_task_files
from weft.train.workers.worker import device_by, prepare_resolved, train_parts, trainers_of

JOB, MODEL, EVENTS, STOP = "job.json", "model.safetensors", "events.jsonl", "stop"
SUMMARY, WEIGHTS = "summary.json", "weights.safetensors"
MEET = 600.0
"""Seconds that the ranks of a script wait for each other: each comes from its own reading of the data."""
_held: list[Group] = []


def team_size(workers: int | None) -> int:
    """Return how many processes train: those of torchrun, else as many as are asked for."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers: expected a whole number of at least 1, got {workers!r}")
    if launched():
        raise InputError(
            "weft.train was called while a worker imports your code; put the call under `if __name__ == "
            '"__main__":`'
        )
    size = int(os.environ["WORLD_SIZE"]) if is_worker() else 1
    if size > 1 and workers not in (None, size):
        raise InputError(f"workers: torchrun started {size} processes, {workers} are asked for; leave it out")
    return size if size > 1 else workers or 1


def train_together(resolved: Resolved, place: Place, size: int) -> Summary:
    """Train on several processes and return the summary, with the trained model."""
    return _join(resolved, place) if is_worker() and size > 1 else _start(resolved, place, size)


# Workers that are started here


def _start(resolved: Resolved, place: Place, workers: int) -> Summary:
    # A folder which nobody else may read.
    with scratch(JOB_PREFIX) as folder, claimed(place.out):
        described = _described(resolved)  # refused before the graph is cut
        if place.out is not None:
            check_folder(Path(place.out), resume=place.resume)
        parts = prepare_resolved(resolved, folder if place.out is None else Path(place.out), workers=workers)
        weft.check_room(resolved, parts, workers)
        _write_job(folder, {**described, "parts": str(parts.resolve())}, resolved, place)
        relay, errors = _Relay(folder, place), list[str]()
        env = {"WEFT_COMMAND": command_line()}
        command = [sys.executable, "-m", "weft.train.workers.member", str(folder)]
        try:
            say = partial(_say, errors)
            code = run_workers(command, workers, env=env, began=place.began, tick=relay.turn, say=say)
        except BaseException:
            _note_end(place.out, "failed")
            raise
        relay.turn()
        if code:
            _note_end(place.out, "interrupted" if code == INTERRUPTED else "failed")
            raise _error(code, errors)
        values = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        summary = _summary(values, resolved, parts, torch.device("cpu"))
        load_weights(folder / WEIGHTS, summary.model)
        return summary


def _described(resolved: Resolved) -> dict[str, Any]:
    """Return what workers make the model, the loss and the metrics of."""
    tensors: Tensors = {}
    described: dict[str, Any] = {"options": describe_value(dict(resolved.options), "options", tensors)}
    if isinstance(resolved.model, str):
        described["model"] = resolved.model
    else:
        described["described"] = describe(own_of(resolved.model), tensors)
    loss, metrics = resolved.loss_choice, (resolved.own_metrics or {}).items()
    if loss is not None:
        described["loss"] = _function(loss, "loss", tensors)
    described["metrics"] = {name: _function(metric, f"metrics: {name}", tensors) for name, metric in metrics}
    return {**described, "tensors": tensors}


def _function(function: Any, where: str, tensors: Tensors) -> Any:
    if hasattr(function, "__qualname__") and name_of(function) is None:
        raise InputError(
            f"{where}: workers cannot find {function.__qualname__}, which no module holds by that name; "
            "define it with def, at the top of a module or script"
        )
    return describe_value(function, where, tensors)


def _write_job(folder: Path, described: dict[str, Any], resolved: Resolved, place: Place) -> None:
    tensors = described.pop("tensors")
    job = {
        **described,
        "paths": [os.path.abspath(path) for path in sys.path],
        "task": resolved.task.to_dict(),
        "strategy": resolved.strategy,
        "strategy_options": resolved.strategy_options,
        "settings": asdict(resolved.settings),
        "out": None if place.out is None else os.path.abspath(place.out),
        "resume": place.resume,
        "began": place.began,
        "watched": place.progress is not None or place.stop is not None,
    }
    (folder / JOB).write_text(json.dumps(job), encoding="utf-8")
    if tensors:
        (folder / MODEL).write_bytes(to_bytes(tensors))


class _Relay:
    """Hands events of the first worker to whoever watches, and a wish to stop to the worker."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder, self.place = folder, place
        self._read = 0

    def turn(self) -> None:
        """Hand on what is new; `stop` is asked once an epoch."""
        path = self.folder / EVENTS
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            if self.place.progress is not None:
                self.place.progress(event)
            if event["event"] == "epoch" and self.place.stop is not None and self.place.stop():
                (self.folder / STOP).touch()


def _say(errors: list[str], text: str) -> None:
    """Show what the launcher says; the error itself is raised."""
    lines = text.splitlines()
    if len(lines) == 1 and lines[0].startswith("weft: error: "):
        errors.append(lines[0].removeprefix("weft: error: "))
    else:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _error(code: int, errors: list[str]) -> BaseException:
    if code == INTERRUPTED:
        return KeyboardInterrupt("the workers were interrupted")
    message = errors[-1] if errors else f"the workers ended with exit code {code}"
    return InputError(message) if code == InputError.exit_code else WorkerLost(message)


def _note_end(out: str | Path | None, status: str) -> None:
    if out is not None and holds_run(Path(out)) and (Path(out) / "run.json").exists():
        end_run(out, status)


def _summary(values: Mapping[str, Any], resolved: Resolved, parts: Path, device: torch.device) -> Summary:
    """Return what the first worker tells, with the model, given or made by its name; weights are to come."""
    model, settings = resolved.model, resolved.settings
    whole = resolved.open()
    task = resolved.make_task(whole)
    read_task_files(task, parts)
    if isinstance(model, str):
        model = build_model(whole, model, resolved.options, task=task, seed=settings.seed)
    put_head(task, model, GraphInfo.of(whole), seed=settings.seed)
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    return Summary.from_dict(values, ready(model, device=device, dtype=dtype))


# Ranks that torchrun started


def _join(resolved: Resolved, place: Place) -> Summary:
    rank = RankPlace.from_environment(os.environ)
    assert rank is not None, "there are several"
    if place.out is None and not rank.on_one_machine:
        raise InputError("ranks on several machines need a folder that all of them see: out=DIR")
    group = _group(device_by(resolved.settings.device, rank.local_rank))
    owner = claimed(place.out) if group.rank == 0 else nullcontext()  # before anything is written there
    try:
        with owner, _scratch(place, group) as folder, _stop_requests() as asked:
            summary = _train_as_rank(resolved, place, group, folder, asked)
            interrupted = summary.stopped == "interrupted" and any(group.all_gather_json(asked()))
            group.barrier()  # nobody reads the folder any more
    except BaseException as error:
        group.abandon(error)
        raise
    if interrupted:
        raise KeyboardInterrupt
    return summary


def _group(device: torch.device) -> Group:
    """Return the group of all ranks: met in the first call, kept for later ones, left at the end."""
    if _held and _held[0].closed:
        raise WorkerLost("the ranks parted after an error; start the script again")
    if not _held:
        if dist.is_initialized():
            raise InputError(
                "torch.distributed is initialised already; leave that to weft.train, which joins the ranks"
            )
        _held.append(Group.connect(join_timeout=seconds("WEFT_JOIN", MEET), device=device))
        atexit.register(_held[0].close)
    if _held[0].device != device:
        raise InputError(f"device: the ranks met on {_held[0].device}; train on the same in every call")
    return _held[0]


@contextmanager
def _scratch(place: Place, group: Group) -> Iterator[Path]:
    """Give the folder in which ranks find their parts: the run's, or one for now that rank 0 makes."""
    if place.out is not None:
        yield Path(place.out)
        return
    if group.rank:
        yield Path(group.expect("scratch"))
        return
    with scratch(JOB_PREFIX) as folder:
        group.post("scratch", str(folder))
        yield folder


def _train_as_rank(
    resolved: Resolved, place: Place, group: Group, folder: Path, asked: Callable[[], bool]
) -> Summary:
    def cut() -> None:
        if place.out is not None:
            again = group.attempt > 0
            check_folder(folder, resume=place.resume or again, restarted=again)
        prepare_resolved(resolved, folder, workers=group.size)

    first = os.environ.get("LOCAL_RANK") == "0"  # one line per machine
    group.prepare(cut, told=f"rank {group.rank} waits for rank 0, which cuts the graph" if first else "")
    if isinstance(resolved.model, torch.nn.Module):
        _same_weights(resolved.model, group)
    own = place.stop or (lambda: False)
    progress = place.progress if group.rank == 0 else None
    watched = replace(place, progress=progress, stop=lambda: asked() or own())
    summary = train_parts(replace(resolved, partition=folder / "partition"), watched, group)
    if trainers_of(resolved, group.size) < group.size:
        summary = _told_to_all(summary, resolved, folder / "partition", group)
    assert summary is not None, "a rank that only sampled was told"
    return summary


def _same_weights(model: torch.nn.Module, group: Group) -> None:
    """Give every rank the weights of rank 0."""
    state = model.state_dict()
    group.agree(model={name: list(value.shape) for name, value in state.items()})
    with torch.no_grad():
        for value in state.values():
            value.copy_(group.broadcast(value.detach().to(group.device, copy=True).contiguous()))


def _told_to_all(summary: Summary | None, resolved: Resolved, parts: Path, group: Group) -> Summary:
    """Return the summary of rank 0, and its weights, also on a rank that only sampled."""
    values = group.all_gather_json(json.loads(dumps(summary.to_dict())) if summary is not None else None)[0]
    if summary is None:
        summary = _summary(values, resolved, parts, group.device)
    _same_weights(summary.model, group)
    return summary


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Have Ctrl-C and SIGTERM end the run after its epoch, as `weft train` has."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # handlers belong to the main thread
        return
    with stop_requests((signal.SIGINT, signal.SIGTERM)) as asked:
        yield asked
