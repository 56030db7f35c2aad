"""Say before a run what every way of doing it costs: memory, bytes, seconds, dollars; and recommend one.

Bytes and messages are those that a run will count; seconds are by the rates of this machine, measured once
(--measure) and kept. --cluster describes machines that are not here, with prices. A graph that one does not
have yet is described by --nodes and --edges or --degree, --features and --classes. Of a recipe with
strategy.name = "buckets" it says what the tables take of memory and of the disk, and the swaps of an epoch.

examples:
  weft plan recipes/cora_gat.toml
  weft plan recipes/cora_gat.toml --workers 1:8 --memory 4GiB --json
  weft plan --nodes 2000000 --edges 60000000 --features 128 --workers 1:16 --cluster cluster.toml
  weft plan --measure
  weft plan --learn runs/cora
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.foretold import keep_forecast
from weft.cli.progress import clear_step, show_step
from weft.cli.settings import add_graph_size, add_recipe, graph_size
from weft.config import read_recipe
from weft.errors import InputError

if TYPE_CHECKING:
    from weft.config import Recipe
    from weft.plan.machine import Machine
    from weft.plan.planning import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_recipe(parser)
    parser.add_argument("--workers", metavar="1:16", help="numbers of workers, a range or a list (1,2,4)")
    parser.add_argument("--memory", metavar="16GiB", help="what a worker may take (default: what is free)")
    parser.add_argument("--cluster", metavar="cluster.toml", help="machines that are not here")
    parser.add_argument("--only", metavar="NAME,NAME", help="strategies to compare (all)")
    parser.add_argument("--epochs", type=int, metavar="N", help="epochs to count one by one (as few as tell)")
    add_graph_size(parser)
    parser.add_argument("--measure", action="store_true", help="measure this machine anew")
    parser.add_argument(
        "--learn",
        metavar="RUN",
        help="show a finished run beside its forecast, and learn this machine from it",
    )
    parser.add_argument("--picture", metavar="FILE", help="draw seconds against memory and dollars, as SVG")
    parser.add_argument("--links", metavar="FILE", help="with --cluster: draw the load by link, as SVG")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Measure where asked to, plan, show."""
    from weft.events import dumps
    from weft.plan.learned_rows import plan_rows, plans_rows
    from weft.plan.machine import cache_folder

    if options.learn is not None:
        return _learn(options)
    if options.measure and not _asks_for_plan(options):
        found = machine_here(measure=True)
        clear_step()
        if options.json:
            print(dumps({"machine": dict(found.measured), "kept": str(cache_folder())}))
        else:
            say_table("machine", [[name, str(value)] for name, value in found.measured.items()])
        return 0
    recipe = read_recipe(options.recipe, overrides=options.settings)
    if plans_rows(recipe):
        for name in ("workers", "memory", "cluster", "only", "epochs", "picture", "links"):
            if getattr(options, name) is not None:
                raise InputError(f"--{name}: is not of 'buckets', whose plan is of one process; leave it out")
        foreseen = plan_rows(recipe, graph_size(options))
        print(dumps(foreseen.to_dict()) if options.json else "\n".join(foreseen.told()))
        return 0
    plan = _planned(options, recipe)
    if options.picture:
        from weft.plan.picture import draw

        Path(options.picture).write_text(draw(plan), encoding="utf-8")
    if options.links:
        from weft.plan.link_picture import draw_links

        if plan.dealing is None:
            raise InputError(
                "--links: needs several workers on machines with links; add --cluster cluster.toml"
            )
        Path(options.links).write_text(draw_links(plan.dealing), encoding="utf-8")
    if options.json:
        print(dumps(plan.to_dict()))
    else:
        _show(plan)
    return 0


def _learn(options: argparse.Namespace) -> int:
    from weft.events import dumps
    from weft.plan.learning import learn
    from weft.plan.machine import keep_machine
    from weft.sizes import shown

    if _asks_for_plan(options):
        raise InputError("--learn: a run brings its recipe; leave others and settings out")
    lesson = learn(Path(options.learn), machine_here(measure=options.measure))
    if lesson.learned:
        keep_machine(lesson.machine)
    keep_forecast(Path(options.learn), lesson.forecast)
    forecast, run, phases = lesson.forecast, lesson.run, list(lesson.rows())
    if options.json:
        told = {name: {"planned": planned, "measured": taken} for name, planned, taken in phases}
        print(dumps({"phases": told, "peak_memory_bytes": run.peak, "learned": lesson.learned}))
        return 0
    rows = [[name, f"{1e3 * planned:.1f} ms", f"{1e3 * taken:.1f} ms"] for name, planned, taken in phases]
    sent = sum(size for rank in run.sent for size, _ in rank[-1].values())
    rows.append(["bytes an epoch", shown(forecast.bytes_per_epoch), shown(sent)])
    rows.append(["peak memory", shown(forecast.peak_memory_bytes), shown(run.peak)])
    say_table("", [["", "planned", "measured"], *rows])
    print("rates of this machine were moved towards it" if lesson.learned else "nothing learned of the rates")
    return 0


def _asks_for_plan(options: argparse.Namespace) -> bool:
    return bool(options.recipe or options.settings or options.nodes)


def _planned(options: argparse.Namespace, recipe: "Recipe") -> "Plan":
    from weft.plan import plan

    return plan(
        recipe,
        workers=numbers(options.workers),
        memory=options.memory,
        cluster=options.cluster,
        only=options.only.split(",") if options.only else (),
        epochs=options.epochs,
        **graph_size(options),
        machine=partial(machine_here, measure=options.measure),
        tell=show_step,
    )


def numbers(given: str | None, option: str = "--workers") -> list[int] | None:
    """Return numbers of workers: "1:16" are the powers of two between both, and these themselves.

    >>> numbers("1:16"), numbers("3"), numbers("2,6"), numbers("1:6")
    ([1, 2, 4, 8, 16], [3], [2, 6], [1, 2, 4, 6])
    """
    if given is None:
        return None
    try:
        if ":" in given:
            low, high = (int(each) for each in given.split(":"))
            between = [2**power for power in range(20) if low < 2**power < high]
            found = sorted({low, *between, high})
        else:
            low, found = 1, [int(each) for each in given.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or (":" in given and low > high):
        raise InputError(f"{option}: expected a number, a list 1,2,4 or a range 1:16, got {given!r}")
    return found


def machine_here(*, measure: bool = False) -> "Machine":
    """Return the model of this machine: the one that is kept, or one made now, of which the user is told."""
    from weft.plan import front
    from weft.plan.machine import read_machine

    if measure or read_machine() is None:
        print("weft: measuring this machine, once, which takes a minute or two", file=sys.stderr)
    return front.machine_here(measure=measure, tell=show_step, warn=_warn)


def _warn(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr)


def _show(plan: "Plan") -> None:
    from weft.plan.shown import chosen, lost, priced, sources, table

    clear_step()
    print(f"recommended: {chosen(plan)}\n")
    say_table("", list(table(plan)))
    if priced(plan):
        print(f"{priced(plan)}\n")
    if plan.dealing is not None:
        print(f"links: {plan.dealing.told()}\n")
    for line in (*sources(plan), *lost(plan)):
        print(f"- {line}")


def say_table(title: str, rows: list[list[str]]) -> None:
    """Print rows in columns, under a title where there is one."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    if title:
        print(title)
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print()
