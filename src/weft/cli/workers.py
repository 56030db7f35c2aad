"""`weft train` with several workers: the process that starts them, and each of them."""

import argparse
import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.elastic import grow_given, workers_given
from weft.comm.failure import launched
from weft.config import Recipe
from weft.errors import InputError, RecipeError, WeftError

if TYPE_CHECKING:
    from weft.comm import Group
    from weft.train.saved.summary import Summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that concern workers."""
    parser.add_argument(
        "--workers",
        type=workers_given,
        metavar="N",
        help="number of processes (1); 2:8 for workers that come and go, 2 at least and 8 at most",
    )
    parser.add_argument("--parts", type=int, metavar="M", help="number of parts of the graph (one a worker)")
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="K",
        help="how often to continue from the last checkpoint when a worker is lost (0)",
    )
    parser.add_argument(
        "--keep-parts",
        action="store_true",
        help="with --workers 2:8: move no part away from a worker that is slower than others",
    )
    parser.add_argument(
        "--notice",
        metavar="COMMAND|URL",
        help="with --workers 2:8: asked every few seconds by each worker, which leaves when the command ends "
        "with 0, or the page answers 200",
    )

    parser.add_argument(
        "--grow",
        type=grow_given,
        metavar="N",
        help="with --workers 2:8: twice as many after each N epochs; value: while 1 / (time x cost) grows",
    )
    parser.add_argument(
        "--engine",
        choices=["ray"],
        help="what finds machines for --workers 2:8, or tensor workers: Ray, by default one started here",
    )
    parser.add_argument(
        "--ray-address", metavar="HOST:PORT", help="of a Ray that runs; start it with its own `ray start`"
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="with --ray-address: the address of this machine that its nodes know (127.0.0.1)",
    )


def check_engine(options: argparse.Namespace) -> None:
    """Refuse what says nothing without the other."""
    if not options.engine and (options.ray_address or options.listen):
        raise RecipeError("--ray-address, --listen: these are of Ray; add --engine ray")
    if options.listen and not options.ray_address:
        raise RecipeError("--listen: a Ray of this machine alone is on loopback; add --ray-address HOST:PORT")


def has_ray_for_products(options: argparse.Namespace, recipe: Recipe) -> bool:
    """Have `--engine ray` place the tensor workers of a strategy with any: settings of it, from now on."""
    if not options.engine or not recipe.strategy.get("tensor_workers"):
        return False
    from weft.strategies.base import strategies

    if not strategies[recipe.strategy.get("name", "single")].lends_products:
        return False
    if options.listen:
        raise RecipeError("--listen: tensor workers are reached by Ray alone; leave it out")
    options.settings += ["strategy.tensor_engine=ray"]
    if options.ray_address:
        options.settings.append(f"strategy.ray_address={options.ray_address}")
    options.engine = options.ray_address = None
    return True


def count_workers(options: argparse.Namespace) -> int:
    """Return how many workers were asked for; where none were, as many as a continued run had."""
    for name, least in (("workers", 1), ("parts", 1), ("max_restarts", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            shown = name.replace("_", "-")
            raise RecipeError(f"--{shown} {value}: expected a whole number of at least {least}")
    if not options.resume or not (Path(options.out) / "run.json").exists():
        return options.workers or 1
    from weft.train.saved.run_folder import read_run

    kept = read_run(options.out)["recipe"]
    before = int(kept.get("graph", {}).get("workers", 1))
    if options.workers not in (None, before):
        from weft.train.workers.deal import check_workers

        check_workers(kept, options.workers, options.out)
    return options.workers or before


def start_workers(options: argparse.Namespace, recipe: Recipe, out: Path, workers: int) -> int:
    """Cut the graph once, then run this command as so many workers and return how they ended."""
    from weft.train.saved.claim import claimed
    from weft.train.saved.run_folder import check_folder
    from weft.train.workers.worker import prepare

    with claimed(out):
        check_folder(out, resume=options.resume)
        prepare(recipe, out, workers=workers)
        _check_room(recipe, out, workers)
        return _run_workers(options, out, workers)


def _check_room(recipe: Recipe, out: Path, workers: int) -> None:
    from weft.plan.room import check_parts
    from weft.train.resolve import resolve

    resolved = resolve(recipe, workers=workers)
    check_parts(resolved, resolved.partition or out / "partition", workers)


def _run_workers(options: argparse.Namespace, out: Path, workers: int) -> int:
    from weft.comm import run_workers
    from weft.train.saved.run_folder import command_line

    command = worker_command(options, out)
    # What the run's folder tells later is what the user typed, not how a worker was started.
    told = {"WEFT_COMMAND": command_line()}
    code = run_workers(command, workers, max_restarts=options.max_restarts, env=told, began=options.began)
    if code:
        conclude_failed(out, code)
    return code


def worker_command(options: argparse.Namespace, out: Path) -> list[str]:
    """Return the command of each worker: this one, with the folder that was chosen."""
    command = [sys.executable, "-m", "weft", "train", *([options.recipe] if options.recipe else [])]
    command += [f"--set={setting}" for setting in options.settings] + [f"--out={out}"]
    command += [f"--parts={options.parts}"] if options.parts else []
    command += [f"--notice={options.notice}"] if options.notice else []
    return command + [f"--{flag}" for flag in ("resume", "json") if getattr(options, flag)]


def conclude_failed(out: Path, code: int) -> None:
    """Leave word in the folder of a run that its workers could not end themselves, and draw its report."""
    from weft.comm.failure import INTERRUPTED
    from weft.report import write_report
    from weft.train.saved.run_folder import end_run, holds_run

    if holds_run(out):
        with suppress(OSError, WeftError):  # the disk may be what ended the run
            end_run(out, "interrupted" if code == INTERRUPTED else "failed")
            write_report(out)


def restarted() -> bool:
    """Return whether torchrun started this process again after a failure."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def train_as_worker(options: argparse.Namespace, recipe: Recipe) -> "Summary | None":
    """Train as one rank of several, which weft itself or torchrun started; rank 0 is given the summary."""
    from weft.comm import Group
    from weft.train.saved.claim import claimed
    from weft.train.saved.run_folder import check_folder, read_run
    from weft.train.workers.deal import check_workers
    from weft.train.workers.worker import device_of, prepare

    if not options.out:
        raise InputError("under torchrun pass --out DIR, the folder of the run that all ranks share")
    out = Path(options.out)
    local_rank = os.environ.get("LOCAL_RANK", os.environ["RANK"])

    def cut() -> None:
        again = group.attempt > 0
        check_folder(out, resume=options.resume or again, restarted=again)
        if (out / "run.json").exists():
            check_workers(read_run(out)["recipe"], group.size, out)
        prepare(recipe, out, workers=group.size)

    with (
        Group.connect(device=device_of(recipe, int(local_rank))) as group,
        claimed(out) if group.rank == 0 else nullcontext(),
    ):
        if not launched():
            # One line per machine: that of its first rank.
            message = f"rank {group.rank} waits for rank 0, which reads and cuts the graph"
            group.prepare(cut, told=message if local_rank == "0" else "")
        summary = _train(options, recipe, out, group)
    return summary if group.rank == 0 else None


def _train(options: argparse.Namespace, recipe: Recipe, out: Path, group: "Group") -> "Summary | None":
    from weft.cli.output import watching
    from weft.comm.signals import stop_requests
    from weft.train.trainer import Place
    from weft.train.workers.worker import run_worker

    # Ctrl-C reaches every process; the launcher takes it and asks its workers by SIGTERM.
    signals = (signal.SIGTERM,) if launched() else (signal.SIGINT, signal.SIGTERM)
    shown = watching() if group.rank == 0 else nullcontext()
    with stop_requests(signals) as stop, shown as progress:
        place = Place(
            out=out,
            resume=options.resume,
            progress=progress,
            stop=stop,
            began=options.began,
            returns_model=False,
        )
        return run_worker(recipe, place, group)
