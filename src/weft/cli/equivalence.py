"""`weft selftest equivalence`: starts the ranks that prove it, and shows what they found."""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import InputError, RecipeError

if TYPE_CHECKING:
    from weft.comm import Group
    from weft.train.proof import Outcome
    from weft.train.proof.own_recipe import OwnRecipe

NAME = "equivalence"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the proof."""
    parser.add_argument("--parts", metavar="N,N", help="numbers of workers (1,2,4)")
    parser.add_argument("--graph", metavar="PATH", help="prove it on this graph instead of built-in ones")
    parser.add_argument(
        "--cover", action="store_true", help="fewer cases, in which any two choices still meet (a minute)"
    )
    parser.add_argument("--results", metavar="DIR", help=argparse.SUPPRESS)  # where ranks leave outcomes


def run(options: argparse.Namespace, recipe: str | None) -> int:
    """Prove it for every number of workers, show a table, and return 0 only if every pair holds."""
    from weft.comm import Group, run_workers
    from weft.train.proof.proving import Outcome

    counts = workers_of(options.parts or "1,2,4")
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="weft-proof-") as name:
        folder = Path(name)
        given = given_of(options, recipe, folder)
        if given is not None:
            given.prepare(counts)
        for workers in counts:
            if workers == 1:
                outcomes += _prove(Group.alone(), given, cover=options.cover)
                continue
            code = run_workers(_command(options, recipe, folder, workers), workers)
            if code:
                return code
            held = json.loads((folder / f"{workers}.json").read_text(encoding="utf-8"))
            outcomes += [Outcome(**{**each, "error": float(each["error"])}) for each in held]
    return show(outcomes)


def run_rank(options: argparse.Namespace, recipe: str | None) -> int:
    """Prove it as one rank of several; rank 0 leaves the outcomes of all."""
    from weft.comm import Group
    from weft.train.proof.proving import plain

    folder = Path(options.results)
    given = given_of(options, recipe, folder)
    with Group.connect() as group:
        outcomes = _prove(group, given, cover=options.cover)
    if group.rank == 0:
        text = json.dumps([plain(outcome) for outcome in outcomes])
        (folder / f"{group.size}.json").write_text(text, encoding="utf-8")
    return 0


def workers_of(text: str) -> list[int]:
    """Return the numbers of workers that `--parts` gives."""
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise InputError(f"--parts {text}: expected whole numbers of at least 1 and commas, such as 1,2,4")
    return counts


def show(outcomes: "list[Outcome]") -> int:
    """Print the worst error of each pair, and each case that does not hold; return the exit code."""
    from weft.cli.output import show_table

    by_pair: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_pair[outcome.pair, outcome.workers].append(outcome)
    rows = [_row(pair, workers, held) for (pair, workers), held in sorted(by_pair.items())]
    head = ("", "pair", "workers", "cases", "refused", "error/bound", "farthest")
    show_table(f"{NAME}: {len(outcomes)} cases", [head, *rows])
    wrong = [outcome for outcome in outcomes if not outcome.holds]
    for outcome in wrong[:20]:
        what = f"{outcome.worst} differs by {outcome.error:.1e}"
        print(f"FAILED  {outcome.workers} workers, {outcome.case}: {what}")
    for reason in sorted({outcome.refused for outcome in outcomes if outcome.refused})[:10]:
        print(f"refused: {reason}")
    proved = sum(not outcome.refused for outcome in outcomes)
    if proved and not wrong:
        print(f"{proved} cases take the steps of one process")
        return 0
    print(f"{len(wrong)} of {proved} cases FAILED" if proved else "nothing was proved")
    return 1


def _row(pair: str, workers: int, held: "list[Outcome]") -> tuple[str, ...]:
    worst = max(held, key=lambda outcome: outcome.error / outcome.bound)
    refused = sum(bool(outcome.refused) for outcome in held)
    verdict = " ok" if all(outcome.holds for outcome in held) else " FAILED"
    verdict = " -" if refused == len(held) else verdict
    share = f"{worst.error / worst.bound:.1e}"
    return verdict, pair, str(workers), str(len(held)), str(refused or ""), share, worst.case.split(": ")[-1]


def _prove(group: "Group", given: "OwnRecipe | None", *, cover: bool) -> "list[Outcome]":
    from weft.train.proof import all_cases, legal_pairs, prove
    from weft.train.proof import cover as covering

    if given is not None:
        with _watching(group, len(given.cases(group.size))) as told:
            return given.prove(group, told)
    pairs = legal_pairs(group.size)
    cases = covering(pairs) if cover else all_cases(pairs)
    with _watching(group, len(cases)) as told:
        return prove(group, cases, told=told)


def given_of(options: argparse.Namespace, recipe: str | None, folder: Path) -> "OwnRecipe | None":
    """Return what is proved of the user's own, None where the built-in cases are."""
    if recipe is None and options.graph is None:
        return None
    from weft.config import read_recipe
    from weft.train.proof.own_recipe import OwnRecipe

    if options.graph is not None and not Path(options.graph).exists():
        raise RecipeError(f"--graph {options.graph}: no such file or folder")
    changes = [] if options.graph is None else [f"data.path={json.dumps(options.graph)}"]
    return OwnRecipe(read_recipe(recipe, overrides=changes), folder)


def _command(options: argparse.Namespace, recipe: str | None, folder: Path, workers: int) -> list[str]:
    command = [sys.executable, "-m", "weft", "selftest", NAME, *([recipe] if recipe else [])]
    command += [f"--parts={workers}", f"--results={folder}"]
    command += [f"--graph={options.graph}"] if options.graph else []
    return [*command, *(["--cover"] if options.cover else [])]


@contextmanager
def _watching(group: "Group", total: int) -> Iterator[Callable[[int, Any], None] | None]:
    """Give what shows how many cases are done: a bar on a terminal, a line now and then elsewhere."""
    if group.rank:
        yield None
        return
    word = f"{group.size} worker{'s' * (group.size > 1)}"
    if not sys.stderr.isatty():
        every = max(1, total // 5)
        yield lambda done, case: _say(f"{word}: {done}/{total}") if done % every == 0 else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [
        TextColumn(f"{word} {{task.completed:.0f}}/{{task.total:.0f}}"),
        BarColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, case: bar.update(task, completed=done, description=str(case)[:60])
        bar.update(task, completed=total, description="")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
