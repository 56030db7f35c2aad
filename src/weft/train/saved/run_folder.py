"""The folder of a run: who may write into it, and what `run.json` says.

run.json         status, recipe, versions, summary
events.jsonl     one line per event; events-rank1.jsonl … the traffic of other workers
partition/       the parts that workers hold, where there are several
checkpoint/      everything needed to continue
model.safetensors    the weights the run returned
report.html      drawn from the above by `weft report`
"""

import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from weft.config import differences, recipe_hash
from weft.errors import FormatError, InputError, RecipeError
from weft.events import Event, dumps, read_events
from weft.format import atomic_write
from weft.kernels import native
from weft.placing import PARTIAL
from weft.reading.json_values import Each, Maybe, WholeNumber, read_json
from weft.train.saved.checkpoint import Checkpoint, Checkpoints

_WRITTEN = ("run.json", "model.safetensors", "report.html", "links.json")
"""What the first worker writes beside its events."""
_PACKAGES = ("weft", "torch", "numpy", "torch_geometric", "safetensors")


class RunFolder:
    """One run's folder. Opening it checks that the run may start or continue there; `create` makes it."""

    def __init__(
        self,
        path: str | Path,
        *,
        recipe: Mapping[str, Any],
        resume: bool = False,
        rank: int = 0,
        restarted: bool = False,
        resumed: Checkpoint | None = None,
    ) -> None:
        """`resumed` is what to continue from where that is not the checkpoint in the folder.

        `restarted` says that the run was started again, so that there may be none yet.
        """
        self.path = Path(path)
        self.recipe = recipe
        self.rank = rank
        """Of several workers only the first, 0, writes more than its own events."""
        self.checkpoints = Checkpoints(self.path / "checkpoint")
        self.resumed = resumed
        self._there, self._before = False, set[str]()
        if resumed is not None:
            return
        check_folder(self.path, resume=resume, restarted=restarted)
        if resume:
            self.resumed = self.checkpoints.load()
            if self.resumed is None:
                self._check_unsaved()

    def _check_unsaved(self) -> None:
        """Refuse to begin anew where a run came to its end and was saved: its checkpoint was taken away."""
        if (self.path / "run.json").exists() and read_run(self.path).get("summary"):
            raise FormatError(
                f"{self.path} holds a run that was saved, but no checkpoint: {self.checkpoints.folder} was "
                "emptied; restore it from a copy, or start anew with another --out (in Python: out=)"
            )

    def create(self) -> None:
        """Make the folder, or tell in one line why that cannot be."""
        self._there = self.path.is_dir()
        try:
            self._before = {item.name for item in self.path.iterdir()} if self._there else set()
            (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create the run folder {self.path}: {error.strerror}") from None
        if not os.access(self.path, os.W_OK):
            raise InputError(f"cannot write into the run folder {self.path}: permission denied")
        self._tidy()

    def _tidy(self) -> None:
        """Remove what a worker that was killed had begun of the files that this one writes."""
        for name in (self.events.name, *(() if self.rank else _WRITTEN)):
            for left in self.path.glob(f".{name}.*{PARTIAL}"):
                left.unlink(missing_ok=True)

    def discard(self) -> None:
        """Leave no run of one that was refused before its first epoch; what is not of this run stays."""
        checkpoints = self.path / "checkpoint"
        with suppress(FileNotFoundError):  # another worker was faster
            if self.resumed is not None or any(checkpoints.iterdir()):
                return
        for name in {self.events.name, "run.json", "trace.json"} - self._before:
            if name == self.events.name or self.rank == 0:
                (self.path / name).unlink(missing_ok=True)
        if self.rank == 0 and "tensorboard" not in self._before:
            shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        for made in (checkpoints, *([] if self._there else [self.path])):
            with suppress(OSError):  # each worker tries, and the last one finds it empty
                made.rmdir()

    def check_recipe(self, free: tuple[str, ...]) -> None:
        """Refuse to continue a run with another recipe; the settings of [train] in `free` may differ."""
        if self.resumed is None:
            return
        old, new = (_without(recipe, free) for recipe in (self.resumed.state["recipe"], self.recipe))
        old, new = _on_any_workers(old, new), _on_any_workers(new, old)
        if recipe_hash(old) != recipe_hash(new):
            changed = "; ".join(differences(_plain(old), _plain(new)))
            raise RecipeError(
                f"{self.path} was started with another recipe ({changed}); continue it unchanged"
            )

    def continue_events(self) -> list[Event]:
        """Return the events up to the checkpoint that is continued, and drop later ones from the file."""
        done = self.resumed.epoch if self.resumed else 0
        path = self.events
        kept = [
            event
            for event in (read_events(path) if self.resumed and path.exists() else [])
            if event.get("epoch", 0) <= done and event["event"] not in ("end", "error")
        ]
        atomic_write(path, "".join(dumps(event) + "\n" for event in kept).encode())
        return kept

    @property
    def events(self) -> Path:
        """The file of this worker's events."""
        return self.path / (f"events-rank{self.rank}.jsonl" if self.rank else "events.jsonl")

    def expect_there(self) -> None:
        """Raise where the folder was taken away since the run began: nothing could be continued from it."""
        if not self.events.is_file():
            raise InputError(
                f"{self.path} was removed while a run trained in it, and what it held is lost; start anew "
                "with another --out (in Python: out=)"
            )

    def write(self, status: str, **fields: Any) -> None:
        """Write run.json."""
        if self.rank:
            return
        entry = {
            "status": status,
            "recipe": self.recipe,
            "versions": versions(),
            "machine": machine(),
            "command": os.environ.get("WEFT_COMMAND") or command_line(),
            **fields,
        }
        atomic_write(self.path / "run.json", (json.dumps(json.loads(dumps(entry)), indent=1) + "\n").encode())


def check_folder(path: Path, *, resume: bool, restarted: bool = False) -> None:
    """Refuse a folder in which a run cannot begin or, with `resume`, holds no run to continue.

    A run that was started again may have left nothing the time before.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; choose another folder for the run")
    if not resume and holds_run(path):
        raise InputError(
            f"{path} already holds a run; choose another folder, or continue it with --resume"
            " (in Python: resume=True)"
        )
    if resume and not holds_run(path) and not (restarted or _restarted()):
        raise InputError(
            f"{path} holds no run to continue; leave out --resume (in Python: resume=True) to begin one there"
        )


def _restarted() -> bool:
    """Return whether a launcher started this process again: the attempt before may have left nothing yet."""
    attempts = ("WEFT_ATTEMPT", "TORCHELASTIC_RESTART_COUNT")
    return any(os.environ.get(name, "0") != "0" for name in attempts)


def holds_run(path: Path) -> bool:
    """Return whether a folder already belongs to a run; one that was killed at once has left nothing yet."""
    if (path / "run.json").exists():
        return True
    with suppress(FileNotFoundError, NotADirectoryError):
        if any((path / "checkpoint").iterdir()):
            return True
    with suppress(FileNotFoundError, NotADirectoryError):
        return (path / "events.jsonl").stat().st_size > 0
    return False


def read_run(path: str | Path) -> dict[str, Any]:
    """Return what a run's run.json holds."""
    file = Path(path) / "run.json"
    if not file.exists():
        raise InputError(f"{path} holds no run (no run.json)")
    run: dict[str, Any] = read_json(file, _RUN)
    # A null says what an absent key does.
    recipe = _known(run["recipe"])
    return {**run, "recipe": {**recipe, "graph": _known(recipe["graph"])} if "graph" in recipe else recipe}


_GRAPH = {"workers": Maybe(WholeNumber(1)), "part_rank": Maybe([WholeNumber()]), "elastic": Maybe(str)}
_SECTIONS = dict.fromkeys(("data", "task", "model", "strategy", "train"), Maybe(Each(object)))
_RUN = {"status": str, "recipe": {**_SECTIONS, "graph": Maybe(_GRAPH)}}
"""What readers of run.json rely on; other keys may hold anything."""


def _known(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if value is not None}


def end_run(path: str | Path, status: str) -> None:
    """Note how a run ended whose own processes had no time to."""
    run = read_json(Path(path) / "run.json", _RUN)
    if run["status"] == "running":
        ended = json.dumps({**run, "status": status}, indent=1) + "\n"
        atomic_write(Path(path) / "run.json", ended.encode())


def command_line() -> str:
    """Return how this process was started, without the folder of the program."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers depend on."""
    by_package = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:
            continue
    return by_package


def machine() -> dict[str, Any]:
    """Return what the run ran on, without naming the machine."""
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "native_core": native.available(),
        "cpu_features": native.features(),
    }


def _without(recipe: Mapping[str, Any], free: tuple[str, ...]) -> dict[str, Any]:
    train = {key: value for key, value in recipe["train"].items() if key not in free}
    return {**recipe, "train": train}


def _on_any_workers(recipe: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe without the number of workers, and with one word for the parts: those that there are.

    One process that holds the graph whole says nothing of its parts, and then there is nothing to compare.
    """
    graph, theirs = dict(recipe.get("graph", {})), other.get("graph", {})
    cut = "partition" in graph and "partition" in theirs
    for name in ("workers", "elastic", "part_rank", *(() if cut else ("parts", "partition"))):
        graph.pop(name, None)
    strategy = {
        name: value for name, value in recipe.get("strategy", {}).items() if name != "parts" or not cut
    }
    return {**recipe, "graph": graph, "strategy": strategy}


def _plain(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe as JSON gives it back, so that a tuple and a list count as the same."""
    plain: dict[str, Any] = json.loads(json.dumps(recipe, default=str))
    return plain
