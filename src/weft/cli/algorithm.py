"""Run an algorithm, as PageRank or label propagation, on a graph in parts, by one process or several workers.

The folder that is written has a Parquet file for each worker, one row per node: `node`, its number in the
graph, and its value under the name of the algorithm; or `prediction`, the class, and `scores`, those of all
classes. Keys of --set are the options of the algorithm in Python (weft.algorithms). One of your own is named
by its code: my_module:mine.

examples:
  weft algorithm pagerank parts --out ranks
  weft algorithm pagerank parts --workers 4 --set damping=0.9 --set weighted=true --out ranks
  weft algorithm label_propagation parts --workers 4 --set alpha=0.8 --out labels
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from weft.cli.settings import add_settings
from weft.comm.failure import guarded, is_worker, launched
from weft.errors import RecipeError

if TYPE_CHECKING:
    from weft.algorithms.base import GraphParts
    from weft.comm import Group

NOTE = "_algorithm.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("name", help="pagerank, label_propagation, or module:name of your own")
    parser.add_argument("parts", metavar="PARTS", help="folder, as weft partition wrote it")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes (1)")
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace what such a command wrote")


def run(options: argparse.Namespace) -> int:
    """Run the algorithm, as one of the workers or as the one who starts them."""
    if launched():
        return guarded(lambda: _run_worker(options))
    if is_worker():
        raise RecipeError(
            "weft algorithm starts workers itself; under torchrun use weft.algorithms.GraphParts"
        )
    given = _options(options.name, options.settings)
    try:
        return _start(options, given)
    except _Ended as ended:
        return ended.code


def _run_worker(options: argparse.Namespace) -> int:
    from weft.comm import Group

    given = _options(options.name, options.settings)
    with Group.connect() as group:
        _run_rank(options, given, Path(options.out), group)
    return 0


def _start(options: argparse.Namespace, given: dict[str, Any]) -> int:
    import json

    from weft import format
    from weft.comm import Group, run_workers
    from weft.graph.parts.partition import read_partition

    info = read_partition(options.parts)
    if not 1 <= options.workers <= info.num_parts:
        raise RecipeError(f"--workers {options.workers}: expected 1 … {info.num_parts}, the number of parts")
    with format.new_directory(options.out, options.overwrite, marker=NOTE) as partial:
        if options.workers == 1:
            _run_rank(options, given, partial, Group.alone())
        else:
            command = [sys.executable, "-m", "weft", "algorithm", options.name, options.parts]
            command += [f"--set={setting}" for setting in options.settings] + [f"--out={partial}"]
            code = run_workers(command, options.workers)
            if code:
                raise _Ended(code)
        told = {"algorithm": options.name, "options": given, "partition": info.sha256}
        (partial / NOTE).write_text(json.dumps({**told, "workers": options.workers}) + "\n")
    print(f"{info.num_nodes:,} nodes are in {options.out}", file=sys.stderr)
    return 0


class _Ended(Exception):
    """Workers that failed, which was told already: what they wrote is not kept."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _run_rank(options: argparse.Namespace, given: dict[str, Any], folder: Path, group: "Group") -> None:
    """Write the file of the rows that a rank holds."""
    from weft.algorithms.base import GraphParts, algorithms
    from weft.registry import require

    parquet = require("pyarrow.parquet", "data")
    parts = GraphParts.open(options.parts, group)
    values = algorithms[options.name](parts, **given)
    parquet.write_table(_table(options.name, parts, values), folder / f"part-{group.rank:05d}.parquet")


def _table(name: str, parts: "GraphParts", values: Any) -> Any:
    import pyarrow as pa

    if values.dim() == 1:
        return pa.table({"node": parts.node_ids.numpy(), name.rpartition(":")[2]: values.numpy()})
    nodes = parts.node_ids[parts.target_rows].numpy()
    scores = pa.FixedSizeListArray.from_arrays(pa.array(values.flatten().numpy()), values.shape[1])
    return pa.table({"node": nodes, "prediction": values.argmax(1).numpy(), "scores": scores})


def _options(name: str, settings: list[str]) -> dict[str, Any]:
    """Return the options that `--set` gave, checked against those of the algorithm."""
    from torch import Tensor

    from weft.algorithms.base import algorithms
    from weft.config import bind, parse_value

    algorithm, given = algorithms[name], {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise RecipeError(f"--set {text}: expected key=value, for example --set damping=0.9")
        given[key.strip()] = parse_value(value.strip())
    # One value per row is for Python, where a rank knows its rows.
    hints = get_type_hints(algorithm)
    rows = [key for key, kind in hints.items() if kind is Tensor or Tensor in get_args(kind)]
    return bind(algorithm, given, name, given=("graph", *rows))
