"""Tell what the compiler makes of each message of a model: where operators run, what is left on edges.

MODEL is the name of a layer, a class of your own (net.py:Net, my_package.my_module:Net) or a recipe; settings
are those of `weft train`. The model runs once on the whole graph, untrained.

examples:
  weft explain edgeconv --graph cora.npz
  weft explain net.py:Net --graph community --set data.nodes=5000 --picture messages.html
  weft explain edgeconv --graph cora.npz --workers 4
  weft explain recipes/cora_gat.toml --set model.name=gine --json
"""

import argparse
import json
import sys
from pathlib import Path

from weft.cli.settings import add_settings
from weft.code import is_code
from weft.config import Recipe, read_recipe
from weft.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a layer, FILE.py:CLASS or RECIPE.toml (sage)"
    )
    parser.add_argument(
        "--graph", metavar="GRAPH", help="a file, a folder, or the name of a data set (community)"
    )
    add_settings(parser, "override one setting")
    parser.add_argument(
        "--picture", metavar="FILE", help="draw each message before and after, as a page of HTML"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="cut the graph for N, and tell what crosses (1)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Make the model and the graph, print what becomes of its messages, and draw them."""
    from weft.report import write_explanation
    from weft.train.explain import explain_recipe

    if options.workers < 1:
        raise InputError(f"--workers {options.workers}: expected a whole number of at least 1")
    found = explain_recipe(recipe_of(options), workers=options.workers)
    print(json.dumps(found.to_dict()) if options.json else found)
    if options.picture:
        title = f"{options.model or 'sage'} on {options.graph or 'its graph'}"
        print(f"drawn: {write_explanation(found, options.picture, title=title)}", file=sys.stderr)
    return 0


def recipe_of(options: argparse.Namespace) -> Recipe:
    """Return the recipe that was named, or that of a model and a graph; settings come last."""
    model, given = options.model, []
    path = model if model is not None and model.endswith(".toml") else None
    if model is not None and path is None:
        given.append(f"model.{'class' if is_code(model) else 'name'}={json.dumps(model)}")
    if options.graph is not None:
        given.append(f"data.{_source(options.graph)}={json.dumps(options.graph)}")
    return read_recipe(path, overrides=[*given, *options.settings])


def _source(graph: str) -> str:
    """Return the key of [data] that a graph is given by: a path, where there is one, or a name."""
    from weft.datasets import datasets

    if Path(graph).exists():
        return "path"
    if graph in datasets.names():
        return "name"
    raise InputError(
        f"--graph {graph}: no such file or folder, and no data set of this name; known: "
        f"{', '.join(datasets.names())}"
    )
