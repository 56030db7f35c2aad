"""Ask a run for more workers, or fewer, while it trains.

The run was started with `weft train --workers LEAST:MOST`. Workers that come train from the next boundary on,
an epoch, or a step of mini-batches; workers that are too many leave there. Losses and weights do not change.

examples:
  weft train recipes/cora_gat.toml --workers 2:8 --out runs/cora
  weft scale runs/cora 4
"""

import argparse
from pathlib import Path

from weft.cli.elastic import ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("folder", metavar="RUN", help="the folder of a run that goes on")
    parser.add_argument("workers", type=int, metavar="N", help="how many workers are to train")


def run(options: argparse.Namespace) -> int:
    """Ask, and say so."""
    print(ask(Path(options.folder), options.workers))
    return 0
