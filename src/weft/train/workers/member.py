"""A worker that `weft.train` started: `python -m weft.train.workers.member FOLDER`, the folder of its job."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.code import add_paths
from weft.comm.failure import clear_orphan, guarded
from weft.comm.group import Group
from weft.comm.signals import stop_requests
from weft.events import Event, dumps
from weft.tasks.choose import TaskChoice
from weft.train.resolve import Resolved
from weft.train.saved.checkpoint import from_bytes, save_weights
from weft.train.settings import Settings
from weft.train.trainer import Place
from weft.train.user.followed import followed
from weft.train.user.functions import Own
from weft.train.user.portable import rebuild, rebuild_value
from weft.train.workers.team import EVENTS, JOB, MODEL, STOP, SUMMARY, WEIGHTS
from weft.train.workers.worker import device_by, train_parts


def main(folder: Path) -> int:
    """Train as one rank of several; the first leaves the summary and the weights in the folder."""
    clear_orphan(folder)
    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    add_paths(job["paths"])
    resolved = _resolved(job, folder)
    device = device_by(resolved.settings.device, int(os.environ["LOCAL_RANK"]))
    # Ctrl-C reaches every process; the launcher takes it and asks its workers by SIGTERM.
    with (
        Group.connect(device=device) as group,
        stop_requests((signal.SIGTERM,)) as asked,
    ):
        first = job["watched"] and group.rank == 0
        place = Place(
            out=job["out"],
            resume=job["resume"],
            began=job["began"],
            progress=_writer(folder / EVENTS) if first else None,
            stop=(lambda: asked() or (folder / STOP).exists()) if first else asked,
        )
        summary = train_parts(resolved, place, group)
        if group.rank == 0:
            assert summary is not None, "rank 0 trains"
            save_weights(folder / WEIGHTS, summary.model)
            (folder / SUMMARY).write_text(dumps(summary.to_dict()), encoding="utf-8")
    return 0


def _resolved(job: dict[str, Any], folder: Path) -> Resolved:
    settings, path = Settings(**job["settings"]), folder / MODEL
    tensors = from_bytes(path.read_bytes(), path) if path.exists() else {}
    model = followed(rebuild(job["described"], tensors)) if "described" in job else job["model"]
    metrics = {name: rebuild_value(metric, tensors) for name, metric in job["metrics"].items()}
    loss = rebuild_value(job["loss"], tensors) if "loss" in job else None
    return Resolved(
        {},
        model,
        rebuild_value(job["options"], tensors),
        job["strategy"],
        job["strategy_options"],
        settings,
        Path(job["parts"]),
        own=Own.of(settings, loss=loss, metrics=metrics),
        task=TaskChoice.of(job["task"]),
    )


def _writer(path: Path) -> Callable[[Event], None]:
    file = path.open("a", buffering=1, encoding="utf-8")

    def write(event: Event) -> None:
        file.write(dumps(event) + "\n")

    return write


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(Path(sys.argv[1]))))
