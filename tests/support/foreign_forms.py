"""Further forms of what weft reads: typed and temporal graphs, other cuts, what workers keep of a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from foreign_folders import npz, small_graph
from torch import nn

import weft
from weft.cli.main import main
from weft.config import make_recipe
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import write_partition
from weft.partitioners.selfreliant import SelfReliantPartitioner
from weft.train.launch import run_recipe
from weft.train.saved.checkpoint import Checkpoints, weights_of
from weft.train.trainer import Place
from weft.train.workers.deal import unpacked

TYPED: dict[str, Any] = {
    "node_types": np.array(["a", "p"]),
    "num_nodes": np.array([2, 3]),
    "target": np.array("p"),
    "edge_a_p": np.array([[0, 1], [2, 0]]),
    "edge_p_cites_p": np.array([[0], [1]]),
    "x_a": np.ones((2, 5), np.float32),
    "x_p_data": np.array([1.5], np.float32),
    "x_p_indices": np.array([1]),
    "x_p_indptr": np.array([0, 0, 1, 1]),
    "x_p_shape": np.array([3, 2]),
    "y": np.array([0, 1, 1]),
    "train_20": np.array([0]),
    "test_20": np.array([1]),
}
NAMED: dict[str, Any] = {
    "edge_user_artist": np.array([[0, 1, 1], [0, 0, 2]]),
    "edge_weight": np.array([5, 2, 9]),
    "num_users": np.array(2),
    "num_entities": np.array(4),
    "entity_triples": np.array([[0, 0, 1], [2, 1, 3]]),
    "relation": np.array([b"of", b"by"]),
    "artist": np.array([b"x", b"y", b"z"]),
    "x_artist": np.ones((3, 2), np.float32),
}
TRIPLES: dict[str, Any] = {
    "train": np.array([[0, 1, 2], [2, 0, 1], [1, 1, 0]], np.int32),
    "test": np.array([[3, 0, 0]], np.int32),
    "entity": np.array([b"00a", b"00b", b"c", b"d"]),
    "relation": np.array([b"likes", b"is part of"]),
}


def _archive(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path / "g.npz", **arrays)
    return path / "g.npz"


def typed_npz(path: Path) -> Path:
    """Write a graph of two types in an archive."""
    return _archive(path, TYPED)


def named_npz(path: Path) -> Path:
    """Write a graph whose types are told by the names of arrays."""
    return _archive(path, NAMED)


def triples_npz(path: Path) -> Path:
    """Write a knowledge graph."""
    return _archive(path, TRIPLES)


def _typed() -> weft.Graph:
    nodes = {
        "a": {"x": np.ones((4, 2), np.float32), "node_ids": np.array(["p", "q", "r", "s"])},
        "b": {"x": scipy.sparse.csr_matrix(np.eye(5, 3, dtype=np.float32)), "y": np.arange(5) % 2},
    }
    ends = np.array([[0, 1, 2, 3], [4, 3, 2, 1]])
    edges: dict[Any, Any] = {
        ("a", "to", "b"): {"edge_index": ends, "edge_weight": np.ones(4, np.float32)},
        ("b", "of", "b"): {"edge_index": ends, "edge_attr": np.ones((4, 2), np.float32)},
    }
    return weft.Graph.from_types(nodes, edges, target_type="b")


def typed_folder(path: Path) -> Path:
    """Write a folder of weft with types, ids, sparse features and data of some edges."""
    _typed().save(path / "g")
    return path / "g"


def temporal_folder(path: Path) -> Path:
    """Write a folder of weft whose edges have times and a split."""
    graph = small_graph()
    ends = graph.edge_index
    data = {"split": torch.arange(40) % 3}
    weft.Graph.from_edges(ends, num_nodes=12, x=graph.x, edge_time=torch.arange(40), edge_data=data).save(
        path / "g"
    )
    return path / "g"


def sparse_folder(path: Path) -> Path:
    """Write a folder of weft with sparse features, and labels that are columns."""
    x = scipy.sparse.csr_matrix(np.eye(12, 4, dtype=np.float32))
    ends, several = small_graph().edge_index, np.eye(12, 3, dtype=np.int64)
    weft.Graph.from_edges(ends, num_nodes=12, x=x, y=several).save(path / "g")
    return path / "g"


def _parts(path: Path, graph: weft.Graph, assignment: Assignment) -> Path:
    write_partition(path / "p", graph, assignment)
    return path / "p"


def vertex_cut(path: Path) -> Path:
    """Write a graph whose edges are dealt to two parts."""
    return _parts(path, small_graph(), Assignment((torch.arange(40) % 2).int(), 2, cuts="edges"))


def grid(path: Path) -> Path:
    """Write a graph in the cells of a grid."""
    cells = Assignment((torch.arange(12) % 4).int(), 4, cuts="grid", grid=(2, 2))
    return _parts(path, small_graph(), cells)


def self_reliant(path: Path) -> Path:
    """Write parts that hold all that their training nodes read."""
    parts = SelfReliantPartitioner().assign(small_graph(), 2)
    return _parts(path, small_graph(), Assignment(parts, 2))


def typed_parts(path: Path) -> Path:
    """Write a typed graph in two parts."""
    return _parts(path, _typed(), Assignment((torch.arange(9) % 2).int(), 2))


class _Strategy:
    """What is asked of a strategy when the files of two workers become those of one."""

    workers, state_sums = 1, ("loss",)
    layout = SimpleNamespace(state_of_run=True)

    def state_range(self, name: str) -> range | None:
        return range(4) if name == "rows" else None

    def state_nodes(self) -> torch.Tensor:
        return torch.arange(4)


def kept_by_workers(path: Path) -> Path:
    """Write a checkpoint with what each of two workers kept: rows of its nodes, a sum, the clock."""
    held = Checkpoints(path / "c")
    entries = []
    for rank in range(2):
        rows = {"rows": torch.ones(2, 3), "@nodes": torch.arange(2) + 2 * rank}
        entries.append(held.save_rank(1, rank, {**rows, "loss": torch.ones(1), "clock": torch.tensor([1])}))
    held.save(1, {"model": weights_of(nn.Linear(2, 1))}, {"ranks": entries})
    return path / "c"


def read_kept_by_workers(path: Path) -> None:
    """Deal it out to one worker."""
    checkpoints = Checkpoints(path)
    saved = checkpoints.load()
    if saved is not None:
        strategy: Any = _Strategy()
        unpacked(checkpoints, saved, strategy, 0)
        for rank in range(checkpoints.count_ranks(saved)):
            checkpoints.load_rank(saved, rank)


def learned_run(path: Path) -> Path:
    """Train learned rows for an epoch; the checkpoint holds their optimiser's state."""
    told = {
        "data": {"path": str(npz(path))},
        "model": {"name": "sage", "hidden": 2, "layers": 1, "embedding": {"width": 2}},
        "strategy": {"name": "sampled", "batch_size": 8, "fanout": [2]},
        "train": {"epochs": 1, "rows_optimizer": "adam"},
    }
    run_recipe(make_recipe(told), Place(out=path / "r"))
    for file in (path / "r").iterdir():
        if file.is_file() and file.name != "run.json":
            file.unlink()
    return path / "r"


def read_learned_run(path: Path) -> None:
    """Continue the run."""
    assert main(["train", "--resume", "--out", str(path), "--set", "train.epochs=2"]) in (0, 2)
