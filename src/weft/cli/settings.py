"""Options that several commands take: settings, and the size of a graph that is not here."""

import argparse
from typing import Any


def add_settings(parser: argparse.ArgumentParser, told: str = "set one option") -> None:
    """Declare `--set KEY=VALUE`, which may be given again."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help=told)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Declare the recipe that a command foretells, and the settings that override it."""
    parser.add_argument("recipe", nargs="?", metavar="RECIPE.toml", help="the recipe; see recipes/")
    add_settings(parser, "override one setting")


def add_graph_size(parser: argparse.ArgumentParser) -> None:
    """Declare what may be said of a graph that is not here."""
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes of a graph that is not here")
    parser.add_argument("--edges", type=int, metavar="N", help="its edges, each direction one")
    parser.add_argument("--degree", type=float, metavar="D", help="or its edges a node")
    parser.add_argument("--features", type=int, metavar="N", help="its features a node (64)")
    parser.add_argument("--classes", type=int, metavar="N", help="its classes (8)")


def graph_size(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was said of it, by name."""
    return {name: getattr(options, name) for name in ("nodes", "edges", "degree", "features", "classes")}
