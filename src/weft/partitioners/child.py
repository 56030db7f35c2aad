"""The child process that a partitioner runs in: `python -m weft.partitioners.child FOLDER`.

The folder holds the task as JSON and the graph's structure as .npy arrays; the answer is one more array, or
an error as JSON. Features stay with the parent: a partitioner sees edges, types and sets of nodes.
"""

import ctypes
import json
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.code import is_code
from weft.graph.build import Parts
from weft.graph.graph import Graph
from weft.graph.topology import Csr, Topology, index_dtype
from weft.partitioners.base import partitioners

SETS = ("train_mask", "val_mask", "test_mask")
TASK, RESULT, ERROR = "task.json", "parts.npy", "error.json"


def write_task(
    folder: Path, graph: Graph, num_parts: int, *, module: str, name: str, options: Mapping[str, Any]
) -> None:
    """Write what the child needs."""
    arrays = {"indptr": graph.indptr, "indices": graph.indices}
    if graph.edge_type is not None:
        arrays["edge_type"] = graph.edge_type
    arrays |= {chosen: mask for chosen in SETS if (mask := getattr(graph, chosen)) is not None}
    for key, value in arrays.items():
        np.save(folder / f"{key}.npy", value.cpu().numpy(), allow_pickle=False)
    task = {
        "module": module,
        "name": name,
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in options.items()},
        "num_parts": num_parts,
        "node_types": graph.node_types,
        "node_offsets": graph.node_offsets,
        "edge_types": graph.edge_types,
        "target_type": graph.target_type,
    }
    (folder / TASK).write_text(json.dumps(task))


def read_graph(folder: Path, task: Mapping[str, Any]) -> Graph:
    """Return the graph of a task: its edges, types and sets of nodes."""
    arrays = {
        file.stem: torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
        for file in folder.glob("*.npy")
    }
    count = len(arrays["indices"])
    edge_ids = torch.arange(count, dtype=index_dtype(count))
    node_data: dict[str, Any] = {kind: {} for kind in task["node_types"]}
    node_data[task["target_type"]] = {name: arrays[name] for name in SETS if name in arrays}
    return Graph(
        Parts(
            Topology.from_csr(Csr(arrays["indptr"], arrays["indices"], edge_ids, arrays.get("edge_type"))),
            node_data=node_data,
            edge_data={},
            node_types=task["node_types"],
            node_offsets=task["node_offsets"],
            edge_types=[(source, name, target) for source, name, target in task["edge_types"]],
            target_type=task["target_type"],
            edge_data_is_canonical=True,
        )
    )


def main(folder: Path) -> int:
    """Partition as the task in the folder says; return the exit code."""
    _die_with_parent()
    try:
        task = json.loads((folder / TASK).read_text())
        if not is_code(task["name"]):  # such a name finds its module by itself
            import_module(task["module"])  # enters partitioners that are not of weft
        partitioner = partitioners[task["name"]](**task["options"])
        parts = partitioner.assign(read_graph(folder, task), task["num_parts"])
        np.save(folder / RESULT, np.asarray(parts), allow_pickle=False)
    except Exception as error:
        message = " ".join(str(error).split())
        (folder / ERROR).write_text(json.dumps({"kind": type(error).__name__, "message": message}))
        return 1
    return 0


def _die_with_parent() -> None:
    """Ask Linux to end this process if the parent goes without saying so; elsewhere do nothing."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
