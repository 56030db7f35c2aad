"""Run the trained model of a run over a graph: predictions and embeddings by your ids, as Parquet.

Every layer is computed once a node, exactly, over all edges; with --fanout from sampled neighbours. GRAPH is
whatever `weft train` reads as data.path, by default the data of the run; it is prepared as the run's recipe
says. The folder appears when all is done; an inference that was killed goes on after its last long round when
started again.

A run that learned of pairs writes the rows of nodes, what it says of given pairs (--pairs), the best
partners of nodes (--partners) or the best answers to questions (--questions), known links left out. --nearest
finds the nodes whose rows are most alike. Its nodes' rows are made of the edges that training let
the model see; --all-edges takes every edge of the data.

examples:
  weft infer runs/people --graph graph --out predictions
  weft infer runs/people --graph graph --nodes ids.parquet --out predictions
  weft infer runs/people --graph graph --fanout 10,10 --device cuda --out predictions
  weft infer runs/people --graph graph --engine spark --master spark://host:7077 --out predictions
  weft infer runs/links --pairs pairs.csv --out scores
  weft infer runs/facts --questions questions.csv --answers 5 --out answers
  weft infer runs/facts --nearest 10 --of ids.csv --out alike
  weft infer runs/links --partners 10 --of ids.csv --all-edges --out partners
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.cli.engine import parse_fanout, parse_settings
from weft.pipeline.engines.base import engines

if TYPE_CHECKING:
    from weft.pipeline.infer.inference import RoundProgress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("folder", metavar="RUN", help="folder of a run of weft train")
    parser.add_argument("--graph", metavar="GRAPH", help="the graph to run it on (that of the run)")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write")
    _add_questions(parser)
    _add_engine(parser)
    parser.add_argument(
        "--fanout", help="edges drawn a node in each hop, -1 for all, such as 10,10 (all, exactly)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of these draws (0)")
    parser.add_argument("--device", default="cpu", help="where torch runs the model: cpu, cuda, auto (cpu)")
    parser.add_argument("--overwrite", action="store_true", help="replace an output that is there")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _add_questions(parser: argparse.ArgumentParser) -> None:
    """Declare what may be asked: nodes, pairs, answers, partners, the like."""
    parser.add_argument(
        "--nodes", metavar="FILE", help="Parquet or CSV of the ids asked for (the target type)"
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="Parquet or CSV of pairs to score: source or head, target or tail (and relation)",
    )
    parser.add_argument(
        "--questions",
        metavar="FILE",
        help="Parquet or CSV of questions: head and relation, or relation and tail",
    )
    parser.add_argument("--answers", metavar="K", type=int, help="answers to each question (10)")
    parser.add_argument(
        "--nearest", metavar="K", type=int, help="write the K nodes whose rows are most alike"
    )
    parser.add_argument("--partners", metavar="K", type=int, help="write the K best partners of each node")
    parser.add_argument(
        "--of", metavar="FILE", help="Parquet or CSV of ids: partners, or the like, of these nodes (all)"
    )
    parser.add_argument("--relation", metavar="NAME", help="the relation that partners are looked for in")
    parser.add_argument("--include-known", action="store_true", help="keep partners that are linked already")
    parser.add_argument(
        "--all-edges", action="store_true", help="let messages flow along every edge (those of training)"
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare what runs it, and its memory."""
    known = ("torch", *engines.names())
    parser.add_argument("--engine", choices=known, default="torch", help="what runs it (torch)")
    parser.add_argument("--master", metavar="URL", help="master of a Spark cluster (local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's own"
    )
    parser.add_argument("--memory", metavar="SIZE", help="memory of a piece, or of the engine")


def run(options: argparse.Namespace) -> int:
    """Infer and say what came of it."""
    from weft.pipeline.infer.inference import Links, Setting, infer_run

    setting = Setting(
        options.engine,
        options.memory,
        options.master,
        parse_settings(options.conf),
        fanout=None if options.fanout is None else tuple(parse_fanout(options.fanout)),
        seed=options.seed,
        device=options.device,
    )
    with _watching() as tell:
        result = infer_run(
            options.folder,
            options.out,
            graph=options.graph,
            nodes=options.nodes,
            links=Links(
                options.pairs,
                options.partners,
                options.of,
                options.relation,
                options.include_known,
                options.questions,
                options.answers,
                options.nearest,
            ),
            all_edges=options.all_edges,
            setting=setting,
            overwrite=options.overwrite,
            tell=tell,
        )
    if options.json:
        print(json.dumps(result))
    else:
        _say(result)
    return 0


def _say(result: dict[str, Any]) -> None:
    """Tell what was written, and of what."""
    seconds = sum(result["seconds"].values())
    message = f"{_what(result)} in {seconds:.1f} s: {', '.join(result['files'])} in {result['out']}"
    print(message, file=sys.stderr)
    if result["messages"] == "training":
        message = "rows of nodes are made of the edges that training showed the model; --all-edges takes all"
        print(message, file=sys.stderr)


def _what(result: dict[str, Any]) -> str:
    """Return what was counted."""
    if "pairs" in result:
        return f"{result['pairs']:,} pairs of {result['nodes']:,} nodes"
    if "questions" in result:
        return f"answers to {result['questions']:,} questions"
    if "sources" in result:
        return f"partners of {result['sources']:,} nodes"
    return f"{result['nodes']:,} nodes"


@contextmanager
def _watching() -> "Iterator[RoundProgress]":
    """Give what shows the rounds: a bar on a terminal, elsewhere one line per round."""
    if not sys.stderr.isatty():
        yield _line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=5) as progress:
        task = progress.add_task("reading", total=None)

        def tell(round: int, rounds: int, rows: int, num_rows: int) -> None:
            progress.update(task, description=_round(round, rounds), completed=rows, total=num_rows)

        yield tell


def _line(round: int, rounds: int, rows: int, num_rows: int) -> None:
    if rows == num_rows:
        print(f"{_round(round, rounds)}: {rows:,} nodes", file=sys.stderr, flush=True)


def _round(round: int, rounds: int) -> str:
    return f"layer {round + 1} of {rounds}" if round < rounds else "writing"
