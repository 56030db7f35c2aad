"""Train a model as a recipe says, and write a report.

Settings are section.key=value: [data] path or name and its options, [task] name (link_prediction,
node_regression ...: what is learned, by default what the labels suggest), [model] name (a layer) and its
options, [strategy], [train] epochs, lr, ... All keys: docs/recipe.md. Without a recipe and settings, the
built-in community graph is used.

examples:
  weft train recipes/cora_gat.toml --out runs/cora
  weft train --set data.path=cora.npz --set model.name=gcn --set train.epochs=100 --json
  weft train --set data.path=cora.npz --set task.name=link_prediction --json
  weft train --out runs/cora --resume
  weft train recipes/cora_gat.toml --workers 4 --set strategy.exchange.name=sampled
  weft train recipes/cora_gat.toml --workers 4 --set strategy.name=auto
  weft train recipes/cora_gat.toml --workers 2:8 --out runs/cora
  torchrun --nproc-per-node 4 -m weft train recipes/cora_gat.toml --out runs/cora
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli import elastic, workers
from weft.cli.auto import decided, is_auto
from weft.cli.foretold import keep_forecast
from weft.cli.settings import add_settings
from weft.comm.failure import INTERRUPTED, guarded, is_worker
from weft.config import Recipe, make_recipe, read_recipe
from weft.errors import InputError, WeftError

if TYPE_CHECKING:
    from weft.graph.views import GraphView
    from weft.train.resolve import Resolved
    from weft.train.saved.summary import Summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE.toml", help="the recipe; see recipes/ for examples"
    )
    add_settings(parser, "override one setting")
    parser.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/NAME-TIME-PROCESS)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, bit for bit")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    workers.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Train, show how it goes, write the report, print the summary."""
    if not is_worker():
        return _run(options)
    if elastic.is_member():
        return guarded(lambda: _run_member(options))
    alone = os.environ["WORLD_SIZE"] == "1"  # torchrun may start one process only: that is no worker
    return guarded(lambda: _run(options) if alone else _run_worker(options))


def _run_worker(options: argparse.Namespace) -> int:
    given = (options.workers, options.max_restarts, options.keep_parts, options.engine, options.grow)
    if any(given) or options.notice is not None:
        raise InputError(
            "--workers, --max-restarts, --keep-parts, --notice, --grow, --engine: torchrun starts the "
            "processes; give it its own options"
        )
    recipe = resolve(options)
    if is_auto(recipe):
        raise InputError(
            "strategy.name: 'auto' is for weft train --workers N; under torchrun name a strategy"
        )
    summary = workers.train_as_worker(options, recipe)
    return 0 if summary is None else conclude(summary, json=options.json)


def _run_member(options: argparse.Namespace) -> int:
    summary = elastic.train_as_member(options, resolve(options))
    return 0 if summary is None else conclude(summary, json=options.json)


def _run(options: argparse.Namespace) -> int:
    if options.out == "":
        raise InputError(
            "--out: expected a folder, got an empty name; leave it out for runs/NAME-TIME-PROCESS"
        )
    workers.check_engine(options)
    recipe = resolve(options)
    if workers.has_ray_for_products(options, recipe):
        recipe = resolve(options)
    span, foretold = elastic.span_of(options), None
    if is_auto(recipe):
        if span is not None:
            raise InputError("strategy.name: 'auto' plans for a number of workers; give --workers N")
        recipe, foretold = decided(options, recipe, workers.count_workers(options))
    out = Path(options.out) if options.out else default_out(recipe, options.recipe)
    if span is not None:
        return elastic.start(options, recipe, out, span)
    _refuse_of_members(options)
    count = workers.count_workers(options)
    if count > 1:
        code = workers.start_workers(options, recipe, out, count)
        keep_forecast(out, foretold)
        return code
    if options.max_restarts:
        raise InputError("--max-restarts: one process is not started again; add --workers N")
    from weft.cli.output import watching
    from weft.comm.signals import stop_requests
    from weft.train.launch import run_recipe
    from weft.train.trainer import Place

    with _drawn_on_failure(out), stop_requests() as stop, watching() as progress:
        resume = options.resume or workers.restarted()
        summary = run_recipe(
            recipe,
            Place(out=out, resume=resume, progress=progress, stop=stop, began=options.began),
            check=_check_room,
        )
    keep_forecast(out, foretold)
    return conclude(summary, json=options.json)


def _refuse_of_members(options: argparse.Namespace) -> None:
    """Refuse options that are for workers that come and go."""
    if options.notice is not None:
        raise InputError("--notice: only workers that come and go can leave; add --workers LEAST:MOST")
    if options.grow is not None:
        raise InputError("--grow: only workers that may come can be more; add --workers LEAST:MOST")
    if options.keep_parts:
        raise InputError("--keep-parts: parts move only where workers come and go (--workers LEAST:MOST)")


def _check_room(resolved: "Resolved", held: "GraphView") -> None:
    from weft.plan.room import check_graph

    check_graph(resolved, held)


def resolve(options: argparse.Namespace) -> Recipe:
    """Return the recipe that the command line describes; a run that is continued brings its own."""
    if options.resume and not options.out:
        raise InputError("--resume needs the folder of the run: --out DIR")
    if options.resume and (Path(options.out) / "run.json").exists():
        return _continued(options)
    if options.resume and options.recipe is None and not options.settings:
        _check_named(Path(options.out))
    return _with_parts(read_recipe(options.recipe, overrides=options.settings), options.parts)


def _check_named(out: Path) -> None:
    """Refuse to continue a run on built-in data where nothing says that these are its own."""
    from weft.train.saved.run_folder import check_folder

    check_folder(out, resume=True)
    raise InputError(
        f"{out} has no run.json, which says what is trained there; give the recipe and the settings again, "
        "beside --resume"
    )


def _continued(options: argparse.Namespace) -> Recipe:
    """Return the recipe of the run in --out, or the one that was given again, on the parts it has."""
    from weft.train.saved.run_folder import read_run
    from weft.train.workers.deal import with_parts_of

    kept = read_run(options.out)["recipe"]
    if options.recipe:
        recipe = read_recipe(options.recipe, overrides=options.settings)
    else:
        saved = {name: section for name, section in kept.items() if name != "graph"}
        if not saved.get("data"):
            raise InputError(
                f"{options.out} was made in Python, on a graph that its recipe does not name; continue it "
                f"there: weft.train(graph, model, ..., out={options.out!r}, resume=True)"
            )
        recipe = make_recipe(saved, overrides=options.settings)
    recipe = _with_parts(recipe, options.parts)
    return replace(recipe, strategy=with_parts_of(recipe.strategy, kept, options.out))


def _with_parts(recipe: Recipe, parts: int | None) -> Recipe:
    """Return the recipe with --parts, where it was given, as `strategy.parts`."""
    return recipe if parts is None else replace(recipe, strategy={**recipe.strategy, "parts": parts})


def default_out(recipe: Recipe, path: str | None) -> Path:
    """Return runs/NAME-TIME-PROCESS, named for the recipe, or for the data and the model.

    The number of the process tells runs apart that begin within one second.
    """
    data = Path(str(recipe.data.get("path", recipe.data.get("name", "community")))).stem
    own = str(recipe.model.get("class", "")).rpartition(":")[2]
    name = Path(path).stem if path else f"{data}-{own or recipe.model.get('name', 'sage')}"
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def conclude(summary: "Summary", *, json: bool) -> int:
    """Draw the report, show the summary, and return the exit code."""
    from weft.cli.output import show_summary
    from weft.events import dumps

    show_summary(summary, _draw(summary.out) if summary.out else None)
    if json:
        print(dumps(summary.to_dict()))
    return INTERRUPTED if summary.stopped == "interrupted" else 0


@contextmanager
def _drawn_on_failure(out: Path) -> Iterator[None]:
    """Draw the report of a run that ends in an error, as far as it came; what ended it is raised on."""
    before = _written(out)
    try:
        yield
    except BaseException:
        # A run that was refused has written nothing: the folder is another run's.
        if _written(out) != before:
            with suppress(OSError, WeftError):  # the disk may be what ended the run
                _draw(out)
        raise


def _written(out: Path) -> tuple[int, int] | None:
    """Return what changes whenever run.json is written."""
    try:
        status = (out / "run.json").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _draw(out: str | Path) -> Path:
    from weft.report import write_report

    return write_report(out)
