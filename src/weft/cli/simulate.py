"""Simulate a recipe on workers that are not here: up to 10,000, with shared links, stragglers, failures.

Work and traffic are counted on a few workers by the code of the run itself, and beyond them follow how the
cut grows with the number of parts, which is measured on your graph. Seconds are by the rates of this machine,
as weft plan has them. --cluster describes machines, racks and prices; without it every worker has a machine
like this one.

examples:
  weft simulate recipes/cora_gat.toml --workers 1:1024 --only single,halo
  weft simulate recipes/cora_gat.toml --workers 1:10000 --exchange exact,sampled --bandwidth 10Gbit,100Gbit
  weft simulate recipes/cora_gat.toml --workers 64 --stragglers 0.02:3 --failures 1 --checkpoint-every 20
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.planning import machine_here, numbers, say_table
from weft.cli.progress import clear_step, show_step
from weft.cli.settings import add_graph_size, add_recipe, graph_size
from weft.config import read_recipe
from weft.errors import InputError

if TYPE_CHECKING:
    from weft.simulate.answers import SimulatedAnswers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_recipe(parser)
    parser.add_argument("--workers", metavar="1:1024", help="numbers of workers, a range or a list (1:1024)")
    parser.add_argument("--cluster", metavar="cluster.toml", help="machines, racks, links and prices")
    parser.add_argument("--only", metavar="NAME,NAME", help="strategies (single,halo,sampled)")
    parser.add_argument("--exchange", metavar="NAME,NAME", help="exchanges (all)")
    parser.add_argument("--bandwidth", metavar="10Gbit,…", help="of a machine's link; several are compared")
    parser.add_argument("--latency", type=float, default=1e-4, metavar="S", help="of a message (1e-4)")
    parser.add_argument("--stragglers", metavar="SHARE:TIMES", help="slow workers, as 0.01:2")
    parser.add_argument("--jitter", type=float, default=0.0, metavar="X", help="how far workers scatter (0)")
    parser.add_argument("--failures", type=float, default=0.0, metavar="N", help="failures an hour, of any")
    parser.add_argument("--checkpoint-every", type=int, metavar="N", help="epochs (the recipe's, or 10)")
    parser.add_argument(
        "--leaving", type=float, default=0.0, metavar="N", help="times an hour each one leaves"
    )
    parser.add_argument(
        "--away", type=float, default=600.0, metavar="S", help="seconds until it is back (600)"
    )
    parser.add_argument("--weak", action="store_true", help="also let the graph grow with the workers")
    parser.add_argument("--rehearse", metavar="1:8", help="workers that are counted (1:8)")
    parser.add_argument("--parts", metavar="2:32", help="parts that the cut's growth is measured on (2:32)")
    add_graph_size(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn (0)")
    parser.add_argument("--picture", metavar="FILE", help="draw seconds against workers, as SVG")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Simulate and show."""
    answers = _simulated(options)
    if options.picture:
        from weft.simulate.lines import draw

        Path(options.picture).write_text(draw(answers), encoding="utf-8")
    if options.json:
        from weft.events import dumps

        print(dumps(answers.to_dict()))
    else:
        _show(answers)
    return 0


def _simulated(options: argparse.Namespace) -> "SimulatedAnswers":
    from weft.simulate import simulate

    share, slowdown = _stragglers(options.stragglers)
    given: dict[str, Any] = {
        "workers": numbers(options.workers, "--workers"),
        "only": _names(options.only),
        "bandwidth": _names(options.bandwidth),
        "rehearse": numbers(options.rehearse, "--rehearse"),
        "parts": numbers(options.parts, "--parts"),
    }
    return simulate(
        read_recipe(options.recipe, overrides=options.settings),
        cluster=options.cluster,
        exchanges=_names(options.exchange) or (),
        latency=options.latency,
        stragglers=share,
        slowdown=slowdown,
        jitter=options.jitter,
        failures=options.failures,
        checkpoint_every=options.checkpoint_every,
        leaving=options.leaving,
        away=options.away,
        weak=options.weak,
        **graph_size(options),
        seed=options.seed,
        machine=machine_here(),
        tell=show_step,
        **{name: value for name, value in given.items() if value},
    )


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [each.strip() for each in given.split(",") if each.strip()]


def _stragglers(given: str | None) -> tuple[float, float]:
    """Return the share of slow workers and how slow they are.

    >>> _stragglers("0.01:3"), _stragglers(None)
    ((0.01, 3.0), (0.0, 2.0))
    """
    if given is None:
        return 0.0, 2.0
    share, _, times = given.partition(":")
    try:
        return float(share), float(times or 2.0)
    except ValueError:
        raise InputError(f"--stragglers: expected a share and a slowdown as 0.01:2, got {given!r}") from None


def _show(answers: "SimulatedAnswers") -> None:
    from weft.simulate.answers import said, table

    clear_step()
    for title, points in (("the graph at hand", answers.strong), ("a graph that grows", answers.weak)):
        if points:
            say_table(title, list(table(points)))
    for line in said(answers):
        print(f"- {line}")
    for each in answers.refused:
        print(f"- left out: {each['strategy']} on {each['workers']}: {each['why']}")
