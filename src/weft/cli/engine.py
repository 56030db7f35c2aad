"""The options of commands that run on an engine: which, where, with how much memory."""

import argparse
from typing import Any

from weft.errors import RecipeError
from weft.pipeline.engines.base import engines


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--engine", default="duckdb", help=f"{' or '.join(engines.names())} (duckdb)")
    parser.add_argument(
        "--master", metavar="URL", help="of Spark: local[2], spark://host:7077, yarn (local[*])"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, as of spark-submit",
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="most that DuckDB, or a Spark process, takes (half of what is free)"
    )


def engine_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options as the functions of the pipeline take them."""
    return {
        "engine": options.engine,
        "master": options.master,
        "settings": parse_settings(options.conf),
        "memory": options.memory,
    }


def parse_settings(given: list[str]) -> dict[str, str]:
    """Return Spark's settings by name.

    >>> parse_settings(["spark.speculation=true"])
    {'spark.speculation': 'true'}
    """
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise RecipeError(f"--conf: expected spark.KEY=VALUE, got {text!r}")
        settings[key] = value
    return settings


def parse_fanout(text: str, hops: int | None = None) -> list[int]:
    """Return one fanout per hop; one fanout counts for all hops."""
    try:
        fanout = [int(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"--fanout: expected whole numbers such as 15,10, got {text!r}") from None
    if hops is not None and len(fanout) == 1:
        return fanout * hops
    if hops is not None and hops != len(fanout):
        raise RecipeError(f"--fanout has {len(fanout)} numbers and --hops is {hops}: give one a hop")
    return fanout
