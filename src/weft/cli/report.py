"""Draw the report of a run again, or several runs side by side, from what their folders hold.

examples:
  weft report runs/cora
  weft report runs/exact runs/sampled --out comparison.html
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run; several are compared")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="page to write (default: RUN/report.html, or comparison.html for several runs)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from weft.report import write_comparison, write_report

    if len(options.runs) == 1:
        print(write_report(options.runs[0], options.out))
    else:
        print(write_comparison(options.runs, options.out or "comparison.html"))
    return 0
