"""Draw the report of a run again, from what its folder holds.

example:
  weft report runs/cora
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("run_folder", metavar="RUN", help="folder of the run")


def run(options: argparse.Namespace) -> int:
    """Write report.html into the run's folder and print its path."""
    from weft.report import write_report

    print(write_report(options.run_folder))
    return 0
