"""Small, valid files of every format that weft reads, for tests that damage them."""

import collections
import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import nn

import weft
from weft.config import read_recipe
from weft.graph.parts.partition import write_partition
from weft.partitioners import partition
from weft.pipeline.flatten.flattening import flatten
from weft.stores.mmap import MmapStore
from weft.strategies.asynchronous.order import OrderLog
from weft.train.launch import run_recipe
from weft.train.saved.checkpoint import Checkpoints, optimizer_state, weights_of
from weft.train.trainer import Place


def small_graph() -> weft.Graph:
    """Return a graph of twelve nodes with features, labels and a split."""
    draw = np.random.default_rng(0)
    mask = np.arange(12) % 3
    masks = {name: mask == place for place, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    edges = draw.integers(0, 12, (2, 40))
    return weft.Graph.from_edges(edges, num_nodes=12, x=draw.random((12, 3), np.float32), y=mask, **masks)


def npz(path: Path) -> Path:
    """Write a `.npz` file."""
    graph = small_graph()
    arrays = {"edge_index": graph.edge_index.numpy(), "x": graph.x.numpy(), "y": graph.y.numpy()}
    arrays |= {"num_nodes": np.array(12), "num_relations": np.array(2), "edge_type": np.arange(40) % 2}
    np.savez(path / "g.npz", **arrays, train_mask=graph.train_mask.numpy())
    return path / "g.npz"


def folder(path: Path) -> Path:
    """Write a folder of weft."""
    small_graph().save(path / "g")
    return path / "g"


def shards(path: Path) -> Path:
    """Write a graph in two parts."""
    graph = small_graph()
    write_partition(path / "p", graph, partition(graph, 2, name="hash"))
    return path / "p"


def records(path: Path) -> Path:
    """Write records of a graph's training nodes, which hold all that training reads."""
    flatten(folder(path), path / "r", fanout=[3, 2], targets="train", features="value")
    return path / "r"


def checkpoint(path: Path) -> Path:
    """Write the checkpoint of a linear map and its optimiser."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tensors, rest = optimizer_state(optimizer)
    Checkpoints(path / "c").save(2, {"model": weights_of(model), "optimizer": tensors}, {"optimizer": rest})
    return path / "c"


RECIPE = """[data]
path = "{graph}"
symmetrise = true

[task]
name = "node_classification"
smoothing = 0.1

[model]
name = "gat"
hidden = 4
heads = 2
layers = 2
dropout = 0.5

[strategy]
name = "sampled"
batch_size = 4
fanout = [3, 2]

[train]
epochs = 2
lr = 0.01
seed = 3
patience = 5
schedule = "cosine"
loss = "auto"
"""
CLUSTER = """[machine]
count = 4
cores = 8
memory = "32GiB"
racks = 2
speed = 1.5

[within_rack]
bandwidth = "10Gbit"
latency = 5e-5

[between_racks]
bandwidth = "1Gbit"

[cluster]
machine = "large"
workers = 8

[cluster.prices]
date = "2026-01-01"
large = 2.5
"""
SCHEMA = """[nodes.person]
files = ["{folder}/people.csv"]
id = "id"
label = "group"

[edges."person.knows.person"]
files = ["{folder}/knows.csv"]
src = "a"
dst = "b"
"""


def recipe(path: Path) -> Path:
    """Write a recipe and its data."""
    (path / "recipe.toml").write_text(RECIPE.format(graph=npz(path)))
    return path / "recipe.toml"


def cluster(path: Path) -> Path:
    """Write what a cluster is, and its prices."""
    (path / "cluster.toml").write_text(CLUSTER)
    return path / "cluster.toml"


def run(path: Path) -> Path:
    """Train for two epochs, and return the folder of the run."""
    given = [f"data.path={npz(path)}", "model.hidden=2", "train.epochs=2", "strategy.name=single"]
    run_recipe(read_recipe(overrides=given), Place(out=path / "r"))
    return path / "r"


def tables(path: Path) -> Path:
    """Write tables of nodes and edges, and a schema that says what their columns mean."""
    (path / "t").mkdir()
    (path / "t" / "people.csv").write_text('id,group,age\nann,x,1.5\n"b, b",y,2\ncec,x,\n')
    (path / "t" / "knows.csv").write_text("a,b\nann,cec\ncec,ann\n")
    (path / "t" / "schema.toml").write_text(SCHEMA.format(folder="."))
    return path / "t"


def triples(path: Path) -> Path:
    """Write triples."""
    (path / "facts.tsv").write_text("paris\tcapital\tfrance\nrome\tcapital\titaly\nrome\tin\titaly\n")
    return path / "facts.tsv"


def dgl(path: Path) -> Path:
    """Write a partition in the form of DGL's."""
    told = {
        "num_parts": 2,
        "node_map": {"_N": [[0, 5], [5, 12]]},
        "num_nodes": 12,
        "part-0": {},
        "part-1": {},
    }
    (path / "g.json").write_text(json.dumps(told))
    np.save(path / "orig_nids.npy", np.arange(12)[::-1].copy())
    return path


def store(path: Path) -> Path:
    """Write features that are read row by row."""
    made = MmapStore.create(path / "s", (6, 3), storage="int8")
    made.write(torch.arange(6), torch.ones(6, 3))
    made.close()
    return path / "s"


def order(path: Path) -> Path:
    """Write the order in which a worker read."""
    log = OrderLog(path / "o", HEAD, since=0)
    log.write("enter", 0, 0, 0)
    log.write("read", 0, 0, [0, 0])
    log.write("update", 0)
    log.close()
    return path / "o"


HEAD = {"workers": 1, "rank": 0, "intervals": 2, "staleness": 1, "seed": 0}


def saint(path: Path) -> Path:
    """Write a GraphSAINT folder."""
    matrix = scipy.sparse.csr_matrix(np.eye(4, k=1))
    scipy.sparse.save_npz(path / "adj_full.npz", matrix)
    np.save(path / "feats.npy", np.ones((4, 2), np.float32))
    (path / "class_map.json").write_text(json.dumps({"0": 1, "1": 0, "2": 1, "3": 2}))
    (path / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [3]}))
    return path


def ogb(path: Path) -> Path:
    """Write an OGB folder in the csv layout."""
    tables = {
        "raw/edge": "0,1\n1,2\n3,0\n",
        "raw/num-node-list": "4\n",
        "raw/num-edge-list": "3\n",
        "raw/node-feat": "0.5,-1\n1,2\n0,0\n3,4\n",
        "raw/node-label": "1\n0\n2\n1\n",
        "split/time/train": "0\n1\n",
        "split/time/valid": "2\n",
        "split/time/test": "3\n",
    }
    for name, text in tables.items():
        file = path / f"{name}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode()))
    return path


def planetoid(path: Path) -> Path:
    """Write a Planetoid folder, with the serializer that its authors used."""
    features = scipy.sparse.csr_matrix(np.eye(6, 3, dtype=np.float32))
    labels = np.eye(2, dtype=np.int32)[[0, 1, 0, 1, 0, 1]]
    parts = {"x": features[:2], "allx": features[:4], "tx": features[4:]}
    parts |= {"y": labels[:2], "ally": labels[:4], "ty": labels[4:]}
    parts |= {"graph": collections.defaultdict(list, {0: [1], 1: [0], 2: [3], 3: [4], 4: [5], 5: []})}
    for name, value in parts.items():
        (path / f"ind.tiny.{name}").write_bytes(pickle.dumps(value, 2))
    (path / "ind.tiny.test.index").write_text("4\n5\n")
    return path
