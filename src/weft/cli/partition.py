"""Cut a graph into parts, write a folder a part, and show how good the cut is.

Options of the partitioner are key=value, those of the data data.key=value (data.self_loops=true, which
GCN and GAT need). The folder is data.path of `weft train --workers N`.

examples:
  weft partition cora.npz --parts 8
  weft partition web.npz --parts 16 --name ldg --set passes=5 --out parts/web
  weft partition web.npz --parts 16 --cluster cluster.toml --workers 8
  weft partition web.npz --parts 8 --name dgl --set path=web_parts/web.json
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.progress import clear_step, telling_share
from weft.cli.settings import add_settings
from weft.errors import GraphError, RecipeError

if TYPE_CHECKING:
    from weft.comm.topology import LinkMap
    from weft.graph.parts.assignment import Assignment
    from weft.plan.dealing import Dealing


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
    parser.add_argument("--cluster", metavar="cluster.toml", help="deal the parts to machines and links")
    parser.add_argument("--workers", type=int, metavar="N", help="with --cluster: workers to deal them to")
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
    links = _links(options)
    from weft.datasets import open_dataset
    from weft.graph.parts.partition import write_partition
    from weft.partitioners import partition
    from weft.report.partition_page import render_partition
    from weft.stores.open import in_files
    from weft.train.workers.run_parts import facts_files

    telling_share("reading the graph")(0.0)
    graph = in_files(open_dataset(options.graph, **data))
    if options.parts > graph.num_nodes:
        raise GraphError(
            f"--parts {options.parts}: the graph has {graph.num_nodes} nodes; ask for at most as many"
        )
    start = time.perf_counter()
    given = {"timeout": options.timeout, "hidden": options.hidden, "layers": options.layers}
    watch = telling_share(f"cutting by {options.name}")
    assignment = partition(graph, options.parts, name=options.name, watch=watch, **given, **own)
    seconds = time.perf_counter() - start
    assert assignment.quality is not None
    title = f"{Path(options.graph).name} in {options.parts} parts by {options.name}"
    picture = render_partition(title, assignment.quality).encode()
    files = {**facts_files(graph), "partition.html": picture}
    dealing = None if links is None else _dealt(assignment, links)
    files |= {} if dealing is None else _files_of(dealing)
    watch = telling_share("writing the parts")
    write_partition(out, graph, assignment, overwrite=options.overwrite, files=files, watch=watch)
    clear_step()
    _conclude(assignment, title, out, seconds, dealing, json=options.json)
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


def _links(options: argparse.Namespace) -> "LinkMap | None":
    """Return the links among the workers that parts are dealt to; None where nothing was said of them."""
    if options.cluster is None:
        if options.workers is not None:
            raise RecipeError(
                "--workers: parts are dealt to workers by their links; add --cluster cluster.toml"
            )
        return None
    from weft.cli.planning import machine_here
    from weft.plan.cluster import read_cluster
    from weft.plan.wires import wires_of

    cluster = read_cluster(options.cluster)
    most = min(options.parts, cluster.machines["count"] * cluster.workers)
    workers = most if options.workers is None else options.workers
    if not 1 <= workers <= most:
        raise RecipeError(
            f"--workers {workers}: expected 1 to {most}, for {options.parts} parts on the machines of "
            f"{options.cluster}"
        )
    return wires_of(cluster, machine_here(), workers).links()


def _dealt(assignment: "Assignment", links: "LinkMap") -> "Dealing":
    from weft.plan.dealing import Dealing, part_traffic

    assert assignment.quality is not None
    if assignment.quality.cuts != "nodes":
        raise RecipeError(
            "--cluster: only parts of nodes are dealt to workers; leave it out for parts of edges"
        )
    return Dealing.of(part_traffic(assignment.quality), links)


def _files_of(dealing: "Dealing") -> dict[str, bytes]:
    """Return what `weft train` reads of who holds which part, and the picture of the links."""
    from weft.events import dumps
    from weft.plan.link_picture import draw_links
    from weft.train.workers.placed import DEAL

    return {DEAL: dumps(dealing.to_dict()).encode(), "links.svg": draw_links(dealing).encode()}


def _conclude(
    assignment: "Assignment",
    title: str,
    out: Path,
    seconds: float,
    dealing: "Dealing | None",
    *,
    json: bool,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from weft.events import dumps
    from weft.report.partition_page import quality_rows

    assert assignment.quality is not None
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    rows = [*quality_rows(assignment.quality), ("time", f"{seconds:.1f} s"), ("written to", str(out))]
    if dealing is not None:
        rows.append((f"dealt to {dealing.links.workers} workers", dealing.told()))
    for row in rows:
        table.add_row(*row)
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(table)
    if json:
        told = {"name": assignment.name, "num_parts": assignment.num_parts, "options": assignment.options}
        told |= {"seconds": seconds, "out": str(out), **assignment.quality.to_dict()}
        print(dumps(told if dealing is None else {**told, "deal": dealing.to_dict()}))
