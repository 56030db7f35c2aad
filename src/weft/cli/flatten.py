"""Write the sampled neighbourhood of every target as one record, in Parquet (AGL's GraphFlat).

Records hold what `weft.samplers.NeighborSampler` draws for the same seed in epoch 0. How many there are and
how large is told before; more than 10 GiB need --yes.

examples:
  weft flatten graph --fanout 15,10 --targets train --out records
  weft flatten graph --hops 3 --fanout 5 --targets all --features value --out records --yes
  weft flatten graph --fanout 10,5 --set task.name=link_prediction --out pairs
  weft flatten graph --fanout 15,10 --weight weight --engine spark --master spark://host:7077 --out records
"""

import argparse
import json
import sys
from typing import Any

from weft.cli.engine import add_engine_arguments, engine_options, parse_fanout
from weft.config import make_recipe
from weft.errors import RecipeError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("graph", metavar="GRAPH", help="graph folder, as weft ingest or graph.save wrote it")
    parser.add_argument("--fanout", default="15,10", help="edges drawn in each hop, -1 for all (15,10)")
    parser.add_argument("--hops", type=int, help="number of hops (as many as there are fanouts)")
    parser.add_argument(
        "--targets",
        default="train",
        help="train, val, test, or several as train,val,test; labelled, all (train)",
    )
    parser.add_argument(
        "--set",
        metavar="task.KEY=VALUE",
        dest="settings",
        action="append",
        default=[],
        help="a key of [task]: records of the training pairs of a task of pairs",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws (0)")
    parser.add_argument("--weight", metavar="NAME", help="edge data by which edges are drawn (all alike)")
    parser.add_argument("--temporal", action="store_true", help="no edge later than the time of its target")
    parser.add_argument(
        "--hub",
        type=int,
        default=10_000,
        help="edges from which a node is spread over tasks, 0: never (10000)",
    )
    parser.add_argument(
        "--features",
        choices=("reference", "value"),
        default="reference",
        help="numbers of nodes, or x itself",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace records that are there")
    add_engine_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="write however much it is")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Flatten and say what came of it."""
    fanout = parse_fanout(options.fanout, options.hops)
    from weft.pipeline.flatten.flattening import LIMIT, flatten

    result = flatten(
        options.graph,
        options.out,
        fanout=fanout,
        targets=options.targets,
        task=_task(options.settings),
        seed=options.seed,
        features=options.features,
        weight=options.weight,
        temporal=options.temporal,
        hub=options.hub,
        **engine_options(options),
        overwrite=options.overwrite,
        limit=None if options.yes else LIMIT,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if options.json:
        print(json.dumps(result))
        return 0
    message = f"{result['records']:,} records, {result['bytes']:,} bytes, in {result['out']}"
    print(f"{message}; each node is there {result['replication']:.1f} times", file=sys.stderr)
    return 0


def _task(settings: list[str]) -> dict[str, Any]:
    """Return the section of a recipe that says what records are of; nothing where they are of nodes."""
    for text in settings:
        if not text.startswith("task."):
            raise RecipeError(f"--set {text}: expected a key of [task], as task.name=link_prediction")
    return dict(make_recipe({}, overrides=settings).task)
