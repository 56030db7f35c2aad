"""Tell what the compiler makes of each message of a model: where operators run, what is left on edges.

The recipe and its settings are those of `weft train`; the model runs once on the whole graph, untrained.

examples:
  weft explain --set model.name=edgeconv
  weft explain recipes/cora_gat.toml --set model.name=gine
"""

import argparse

from weft.config import read_recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("recipe", nargs="?", metavar="RECIPE.toml", help="the recipe, as for weft train")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="override one setting",
    )


def run(options: argparse.Namespace) -> int:
    """Make the model and the graph of a recipe and print what becomes of its messages."""
    from weft.train.explain import explain_recipe

    print(explain_recipe(read_recipe(options.recipe, overrides=options.settings)))
    return 0
