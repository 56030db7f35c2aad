"""`weft train --workers 2:8`: workers that come and go; `weft scale` asks for more of them, or fewer."""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.config import Recipe
from weft.errors import RecipeError

if TYPE_CHECKING:
    from weft.comm.elastic.growth import Grower
    from weft.comm.elastic.start import Size
    from weft.train.saved.summary import Summary

SPAN, WANTED = ".workers.json", ".workers-wanted"
"""In the folder of a run that goes on: how many workers there may be; how many are asked for, until seen."""

MOVES = "moves.jsonl"
"""In the folder of a run: every decision to move parts, with what was measured."""


VALUE, GROWTH = "value", "growth.jsonl"
"""What --grow says beside a number, and in the folder of a run every decision to grow."""


class Span(NamedTuple):
    """The least and the most workers."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"


def workers_given(text: str) -> "int | Span":
    """Return what --workers says: a number, or the least and the most as 2:8."""
    least, between, most = text.partition(":")
    try:
        return Span(int(least), int(most)) if between else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a number, or a least and a most as 2:8, got {text!r}"
        ) from None


def span_of(options: argparse.Namespace) -> Span | None:
    """Return between how many workers a run may have, None where they stay as they are."""
    given = options.workers
    kept = _kept(options)
    if options.engine and kept is None and given is None:
        raise RecipeError("--engine ray: say how many workers there may be, --workers LEAST:MOST")
    if options.engine and isinstance(given, int):
        given = Span(given, given)
    if not isinstance(given, Span):
        if kept is None:
            return None
        given = kept if given is None else Span(given, given)
    if not 1 <= given.least <= given.most:
        raise RecipeError(f"--workers {given}: expected a least of at least 1, and a most not below it")
    return given


def _kept(options: argparse.Namespace) -> Span | None:
    """Return what a run that is continued began with."""
    if not options.resume or not options.out or not (Path(options.out) / "run.json").exists():
        return None
    from weft.train.saved.run_folder import read_run

    text = read_run(options.out)["recipe"].get("graph", {}).get("elastic")
    least, _, most = (text or "").partition(":")
    return Span(int(least), int(most)) if most else None


def with_parts(recipe: Recipe, span: Span) -> Recipe:
    """Return the recipe with its parts: as many as there may be workers, where it does not say."""
    from weft.train.workers.deal import check_elastic

    parts = recipe.strategy.get("parts") or span.most
    check_elastic({"name": "halo", **recipe.strategy}, recipe.train, parts, span.most)
    return replace(recipe, strategy={"name": "halo", **recipe.strategy, "parts": parts})


def start(options: argparse.Namespace, recipe: Recipe, out: Path, span: Span) -> int:
    """Cut the graph once, then run this command as workers that come and go; return how they ended."""
    from weft.cli.workers import conclude_failed, worker_command
    from weft.comm.elastic.notice import notice_given
    from weft.comm.elastic.start import Size
    from weft.format import atomic_write
    from weft.train.saved.claim import claimed
    from weft.train.saved.run_folder import check_folder, command_line
    from weft.train.workers.worker import prepare

    if recipe.train.get("placement", "usual") != "usual":
        raise RecipeError(
            "train.placement: parts of workers that come and go move by themselves; leave it out"
        )
    recipe = with_parts(recipe, span)
    parts = recipe.strategy["parts"]
    if options.notice is not None:
        notice_given(options.notice)  # refused before anything is read
    with claimed(out):
        check_folder(out, resume=options.resume)
        prepare(recipe, out, workers=parts)
        (out / WANTED).unlink(missing_ok=True)
        atomic_write(out / SPAN, json.dumps(span._asdict()).encode())
        command = [*worker_command(options, out), f"--workers={span}"]
        run: dict[str, Any] = {
            "env": {"WEFT_COMMAND": command_line()},
            "max_restarts": options.max_restarts,
            "began": options.began,
            "moves": None if options.keep_parts else out / MOVES,
        }
        if options.grow is not None:
            run["grower"] = _grower(options.grow, Size(span.least, span.most, parts), out, recipe)
        try:
            code = _run(options, command, Size(span.least, span.most, parts), out / WANTED, run)
        finally:
            for name in (SPAN, WANTED):
                (out / name).unlink(missing_ok=True)
    if code:
        conclude_failed(out, code)
    return code


def _grower(rule: int | str, size: "Size", out: Path, recipe: Recipe) -> "Grower":
    """Return what has a run grow, by the user's prices where the recipe names them."""
    from weft.comm.elastic.growth import Grower
    from weft.train.saved.prices import read_prices

    table = recipe.train.get("prices")
    each = 1 if table is None else read_prices(table).workers
    return Grower(
        size, rule if isinstance(rule, int) else None, out / GROWTH, lambda workers: -(-workers // each)
    )


def grow_given(text: str) -> int | str:
    """Return what --grow says: a number of epochs, or value."""
    if text == VALUE or (text.isdecimal() and int(text) > 0):
        return text if text == VALUE else int(text)
    raise argparse.ArgumentTypeError(f"expected a number of epochs, or {VALUE}, got {text!r}")


def _run(
    options: argparse.Namespace, command: list[str], size: "Size", wanted: Path, given: dict[str, Any]
) -> int:
    """Run workers on this machine, or where Ray finds room."""
    from weft.comm.elastic.coordinator import run_elastic

    def asked() -> int | None:
        return _taken(wanted)

    if not options.engine:
        return run_elastic(command, size, wanted=asked, **given)
    from weft.comm.elastic.ray_cluster import ray_cluster

    with ray_cluster(command, size, at=options.ray_address, listen=options.listen) as ray:
        return run_elastic(
            command,
            size,
            wanted=asked if options.grow is not None else lambda: ray.wanted(asked),
            spawn=ray.spawn,
            address=ray.address,
            **given,
        )


def is_member() -> bool:
    """Return whether this process is a worker that may come and go."""
    return "WEFT_MEMBER" in os.environ


def train_as_member(options: argparse.Namespace, recipe: Recipe) -> "Summary | None":
    """Train as a worker that came, until the run ends or goes on without it."""
    from weft.cli.output import watching
    from weft.comm.elastic.member import Member
    from weft.comm.elastic.notice import notice_given
    from weft.train.resolve import resolve
    from weft.train.trainer import Place
    from weft.train.workers.elastic import serve

    span = span_of(options)
    assert span is not None, "the launcher passes it"
    recipe = with_parts(recipe, span)
    resolved = resolve(recipe, workers=recipe.strategy["parts"])
    notice = notice_given(options.notice) if options.notice else None
    with Member(notice).present() as member, watching() as progress:
        place = Place(
            out=Path(options.out),
            resume=options.resume,
            progress=progress,
            began=options.began,
            returns_model=False,
        )
        return serve(resolved, place, member, str(span))


def ask(folder: Path, number: int) -> str:
    """Ask the launcher of a run for so many workers, and return what to tell the user."""
    from weft.errors import InputError
    from weft.format import atomic_write
    from weft.train.saved.claim import is_claimed

    told = _read(folder / SPAN)
    if not told:
        raise InputError(
            f"{folder}: no run goes on there whose workers may change; start one with `weft train --workers "
            "2:8`"
        )
    if not is_claimed(folder):
        raise InputError(
            f"{folder}: the run is not running, its launcher was killed; continue it with `weft train --out "
            f"{folder} --resume --workers {told['least']}:{told['most']}`"
        )
    if not told["least"] <= number <= told["most"]:
        raise InputError(
            f"{number} workers: the run may have {told['least']} to {told['most']}, as --workers said"
        )
    atomic_write(folder / WANTED, str(number).encode())
    return f"{number} workers are asked for; they train from the next boundary on"


def _read(file: Path) -> dict[str, Any]:
    from weft.reading.json_values import WholeNumber, read_json

    return read_json(file, {"least": WholeNumber(1), "most": WholeNumber(1)}) if file.is_file() else {}


def _taken(file: Path) -> int | None:
    """Return the number that is asked for, once."""
    try:
        number = int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    file.unlink(missing_ok=True)
    return number
