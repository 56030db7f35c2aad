"""The child process that a partitioner runs in: `python -m weft.partitioners.child FOLDER PARENT`.

The folder holds the task as JSON and the graph's structure as .npy arrays, but for those that lie in files
already: they are named, and mapped from where they are. The answer is one more array, or an error as JSON.
Features stay with the parent: a partitioner sees edges, types and sets of nodes. Which share of the work is
done stands in a file meanwhile, where the partitioner tells.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.code import is_code
from weft.graph.build import Parts
from weft.graph.graph import Graph
from weft.graph.topology import Csr, Topology
from weft.partitioners.base import partitioners
from weft.process import end_with
from weft.reading.arrays import read_header
from weft.reading.mapped import file_of, map_values, remember

SETS = ("train_mask", "val_mask", "test_mask")
TASK, RESULT, ERROR, SHARE = "task.json", "parts.npy", "error.json", "share.txt"


def write_task(
    folder: Path, graph: Graph, num_parts: int, *, module: str, name: str, options: Mapping[str, Any]
) -> None:
    """Write what the child needs."""
    arrays = {"indptr": graph.indptr, "indices": graph.indices, "edge_ids": graph.edge_ids}
    if graph.edge_type is not None:
        arrays["edge_type"] = graph.edge_type
    mapped = {key: there for key, value in arrays.items() if (there := _in_file(value))}
    # Sets may have been changed in memory since they were mapped; the structure of a graph never is.
    arrays |= {chosen: mask for chosen in SETS if (mask := getattr(graph, chosen)) is not None}
    for key in arrays.keys() - mapped.keys():
        np.save(folder / f"{key}.npy", arrays[key].cpu().numpy(), allow_pickle=False)
    task = {
        "module": module,
        "name": name,
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in options.items()},
        "num_parts": num_parts,
        "mapped": mapped,
        "node_types": graph.node_types,
        "node_offsets": graph.node_offsets,
        "edge_types": graph.edge_types,
        "target_type": graph.target_type,
    }
    (folder / TASK).write_text(json.dumps(task))


def _in_file(value: Tensor) -> dict[str, Any] | None:
    """Return what finds the values of a tensor again, where they lie in a file."""
    if value.device.type != "cpu" or not value.is_contiguous() or (found := file_of(value.numpy())) is None:
        return None
    dtype = np.lib.format.dtype_to_descr(value.numpy().dtype)
    return {
        "file": str(found.path.resolve()),
        "offset": found.offset,
        "dtype": dtype,
        "shape": list(value.shape),
    }


def _map(file: Path, dtype: Any, shape: Sequence[int], offset: int) -> Tensor:
    if 0 in shape:
        return torch.from_numpy(np.empty(shape, dtype))
    return torch.from_numpy(remember(map_values(file, np.dtype(dtype), shape, offset)))


def _map_npy(file: Path) -> Tensor:
    with open(file, "rb") as opened:
        header = read_header(opened, file)
    return _map(file, header.dtype, header.shape, header.offset)


def read_graph(folder: Path, task: Mapping[str, Any]) -> Graph:
    """Return the graph of a task: its edges, types and sets of nodes."""
    arrays = {file.stem: _map_npy(file) for file in folder.glob("*.npy")}
    for key, told in task["mapped"].items():
        arrays[key] = _map(Path(told["file"]), told["dtype"], told["shape"], told["offset"])
    node_data: dict[str, Any] = {kind: {} for kind in task["node_types"]}
    node_data[task["target_type"]] = {name: arrays[name] for name in SETS if name in arrays}
    return Graph(
        Parts(
            Topology.from_csr(
                Csr(arrays["indptr"], arrays["indices"], arrays["edge_ids"], arrays.get("edge_type"))
            ),
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
    try:
        task = json.loads((folder / TASK).read_text())
        if not is_code(task["name"]):  # such a name finds its module by itself
            import_module(task["module"])  # enters partitioners that are not of weft
        partitioner = partitioners[task["name"]](**task["options"])
        partitioner.watch = partial(_tell, folder)
        parts = partitioner.assign(read_graph(folder, task), task["num_parts"])
        np.save(folder / RESULT, np.asarray(parts), allow_pickle=False)
    except Exception as error:
        message = " ".join(str(error).split())
        (folder / ERROR).write_text(json.dumps({"kind": type(error).__name__, "message": message}))
        return 1
    return 0


def _tell(folder: Path, share: float) -> None:
    """Write down which share of the work is done."""
    (folder / SHARE).write_text(f"{share:.4f}")


if __name__ == "__main__":
    end_with(int(sys.argv[2]))
    sys.exit(main(Path(sys.argv[1])))
