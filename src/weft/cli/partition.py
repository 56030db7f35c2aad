"""Cut a graph into parts, write a folder a part, and show how good the cut is.

Options of the partitioner are key=value, those of the data data.key=value (data.self_loops=true, which
GCN and GAT need). The folder is data.path of `weft train --workers N`.

examples:
  weft partition cora.npz --parts 8
  weft partition web.npz --parts 16 --name ldg --set passes=5 --out parts/web
  weft partition web.npz --parts 8 --name dgl --set path=web_parts/web.json
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.settings import add_settings
from weft.errors import GraphError, RecipeError

if TYPE_CHECKING:
    from weft.graph.parts.assignment import Assignment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("graph", metavar="GRAPH", help="file or folder that holds the graph")
    parser.add_argument("--parts", type=int, required=True, metavar="N", help="number of parts")
    parser.add_argument("--name", default="metis", help="partitioner (metis)")
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", help="folder to write (default: partitions/GRAPH-NAME-N)")
    parser.add_argument("--overwrite", action="store_true", help="replace a partition that is there")
    parser.add_argument("--hidden", type=int, default=128, help="width that bytes are predicted for (128)")
    parser.add_argument("--layers", type=int, default=3, help="layers that bytes are predicted for (3)")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, help="seconds the partitioner may take (3600)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Partition, write the shards and the picture, show the table."""
    data, own = split_settings(options.settings)
    out = Path(options.out or f"partitions/{Path(options.graph).stem}-{options.name}-{options.parts}")
    if out.exists() and not options.overwrite:
        raise RecipeError(f"{out} already exists; choose another --out or pass --overwrite")
    from weft.datasets import open_dataset
    from weft.graph.parts.partition import write_partition
    from weft.partitioners import partition
    from weft.report.partition_page import render_partition
    from weft.train.workers.run_parts import facts_files

    graph = open_dataset(options.graph, **data)
    if options.parts > graph.num_nodes:
        raise GraphError(
            f"--parts {options.parts}: the graph has {graph.num_nodes} nodes; ask for at most as many"
        )
    start = time.perf_counter()
    given = {"timeout": options.timeout, "hidden": options.hidden, "layers": options.layers}
    assignment = partition(graph, options.parts, name=options.name, **given, **own)
    seconds = time.perf_counter() - start
    assert assignment.quality is not None
    title = f"{Path(options.graph).name} in {options.parts} parts by {options.name}"
    picture = render_partition(title, assignment.quality).encode()
    files = {**facts_files(graph), "partition.html": picture}
    write_partition(out, graph, assignment, overwrite=options.overwrite, files=files)
    _conclude(assignment, title, out, seconds, json=options.json)
    return 0


def split_settings(settings: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the data and those of the partitioner that `--set` gave."""
    from weft.config import parse_value

    data: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        section, dot, rest = key.strip().partition(".")
        if not equals or not section or (dot and (section != "data" or not rest)):
            raise RecipeError(f"--set {text}: expected key=value or data.key=value, for example --set seed=1")
        if not dot and section in ("timeout", "hidden", "layers"):
            raise RecipeError(f"--set {text}: give it as --{section} {value}")
        (data if dot else own)[rest if dot else section] = parse_value(value.strip())
    return data, own


def _conclude(assignment: "Assignment", title: str, out: Path, seconds: float, *, json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from weft.events import dumps
    from weft.report.partition_page import quality_rows

    assert assignment.quality is not None
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    rows = [*quality_rows(assignment.quality), ("time", f"{seconds:.1f} s"), ("written to", str(out))]
    for row in rows:
        table.add_row(*row)
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(table)
    if json:
        told = {"name": assignment.name, "num_parts": assignment.num_parts, "options": assignment.options}
        told |= {"seconds": seconds, "out": str(out), **assignment.quality.to_dict()}
        print(dumps(told))
