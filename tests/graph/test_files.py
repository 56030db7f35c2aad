"""Graphs as folders: the same graph comes back, mapped, or one line says why not."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generated_graphs import assert_same, graphs, typed_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import format
from weft.errors import FormatError
from weft.graph import Graph, SparseFeatures, load

EDGES = [[0, 1, 2, 0, 2], [1, 2, 0, 2, 2]]


@settings(deadline=None, max_examples=40)
@given(graph=st.one_of(graphs(), typed_graphs()))
def test_a_saved_graph_is_loaded_as_it_was(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "g")
        again = load(Path(folder) / "g")
        assert_same(graph, again)
        assert again.target_type == graph.target_type


def test_every_dtype_survives(tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        graph = Graph.from_edges(EDGES, x=torch.eye(3, dtype=dtype))
        graph.save(tmp_path / str(dtype))
        assert load(tmp_path / str(dtype)).x.dtype == dtype
        assert torch.equal(load(tmp_path / str(dtype)).x, graph.x)


def test_a_named_target_type_survives(tmp_path: Path) -> None:
    nodes = {"a": {"y": [0, 1]}, "b": {"y": [1, 0]}}
    Graph.from_types(nodes, {("a", "to", "b"): [[0], [1]]}, target_type="b").save(tmp_path / "g")
    assert load(tmp_path / "g").target_type == "b"


def test_names_of_types_may_be_anything(tmp_path: Path) -> None:
    graph = Graph.from_types(
        {"../up": {"x": np.eye(2)}, "a/b": {"num_nodes": 1}}, {("../up", "–→", "a/b"): [[0, 1], [0, 0]]}
    )
    graph.save(tmp_path / "g")
    assert_same(load(tmp_path / "g"), graph)
    assert [item.name for item in tmp_path.iterdir()] == ["g"]


def test_loading_maps_the_files_and_copies_nothing(tmp_path: Path) -> None:
    count = 500_000
    Graph.from_edges([[0], [1]], x=torch.ones(count, 16), y=torch.zeros(count, dtype=torch.int64)).save(
        tmp_path / "g"
    )
    code = f"""
import torch
from weft.graph import load
def private():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["RssAnon"].split()[0])
load({str(tmp_path / "g")!r}, verify=False)  # what loading itself needs is loaded before the count
before = private()
graph = load({str(tmp_path / "g")!r}, verify=False)
assert float(graph.x.sum()) == {count * 16}
maps = [line for line in open("/proc/self/maps") if "{tmp_path / "g"}" in line]
low = graph.x.data_ptr()
ranges = [tuple(int(part, 16) for part in line.split()[0].split("-")) for line in maps]
print(private() - before, any(start <= low < stop for start, stop in ranges))
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(out[0]) < 8_000, "the features alone are 32,000 KiB"
    assert out[1] == "True", "the tensor's memory is a mapping of the file"


def test_changing_a_loaded_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    Graph.from_edges(EDGES, x=torch.ones(3, 2)).save(tmp_path / "g")
    graph = load(tmp_path / "g")
    graph.x[0, 0] = 9
    assert load(tmp_path / "g").x[0, 0] == 1


def test_a_loaded_graph_trains_like_the_original(tmp_path: Path) -> None:
    graph = Graph.from_edges(EDGES, x=torch.rand(3, 2), edge_weight=torch.rand(5))
    graph.save(tmp_path / "g")
    again = load(tmp_path / "g")
    for one in (graph, again):
        assert one.indices.dtype == torch.int32
    assert torch.equal(
        graph.block().aggregate(graph.x, weight=graph.block().edge("weight")),
        again.block().aggregate(again.x, weight=again.block().edge("weight")),
    )
    assert_same(again.add_self_loops(), graph.add_self_loops())


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    graph = Graph.from_edges(EDGES)
    graph.save(tmp_path / "g")
    with pytest.raises(FormatError, match="already exists"):
        graph.save(tmp_path / "g")
    graph.add_self_loops().save(tmp_path / "g", overwrite=True)
    assert load(tmp_path / "g").num_edges == 7


def test_another_kind_of_folder_is_refused(tmp_path: Path) -> None:
    format.write_directory(tmp_path / "p", {}, {"kind": "partition"})
    with pytest.raises(FormatError, match="holds 'partition', not a graph"):
        load(tmp_path / "p")


def rewritten(tmp_path: Path, change: Any) -> Path:
    """Save a good graph, change its arrays or meta, and write it with right checksums."""
    x = SparseFeatures.from_dense(torch.eye(3))
    Graph.from_edges(EDGES, x=x, edge_type=[0, 1, 0, 1, 0], edge_weight=np.ones(5)).save(tmp_path / "good")
    arrays, meta = format.read_directory(tmp_path / "good")
    arrays = {name: np.array(array) for name, array in arrays.items()}
    change(arrays, meta)
    format.write_directory(tmp_path / "bad", arrays, meta)
    return tmp_path / "bad"


def put(name: str, place: int, value: int) -> Any:
    def change(arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        arrays[name][place] = value

    return change


def drop(name: str) -> Any:
    return lambda arrays, meta: arrays.pop(name)


def shorten(name: str) -> Any:
    return lambda arrays, meta: arrays.update({name: arrays[name][:-1]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("indices", 0, 99), "edges is not valid CSR: pointers must ascend, indices be below 3"),
        (put("indices", 0, -1), "edges is not valid CSR"),
        (put("indptr", 1, 4), "edges is not valid CSR"),
        (put("edge_ids", 0, 1), "edge_ids is not a permutation"),
        (put("edge_ids", 0, 10**6), "edge_ids is not a permutation"),
        (put("edge_type", 0, 2), "edge_type names a relation beyond the 2"),
        (put("node_0_0_indices", 0, 3), "x is not valid CSR"),
        (put("node_0_0_indptr", 1, 7), "x is not valid CSR"),
        (shorten("edge_0"), "lengths of the arrays do not fit"),
        (shorten("edge_type"), "lengths of the arrays do not fit"),
        (shorten("indices"), "lengths of the arrays do not fit"),
        (drop("indices"), "damaged, or not in the format"),
        (drop("edge_0"), "damaged, or not in the format"),
        (lambda arrays, meta: meta.update(num_nodes=5), "do not fit together"),
        (lambda arrays, meta: meta.update(node_offsets=[0, 9]), "do not fit together"),
        (lambda arrays, meta: meta.pop("node_types"), "damaged, or not in the format"),
    ],
)
def test_arrays_that_kernels_could_not_trust_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load(rewritten(tmp_path, change))


def test_saving_killed_in_the_middle_leaves_no_half_graph(tmp_path: Path) -> None:
    code = f"""
import torch
from weft.graph import Graph
graph = Graph.from_edges([[0], [1]], x=torch.ones(300_000, 32))
graph.indptr
print("saving", flush=True)
graph.save({str(tmp_path / "g")!r})
"""
    for moment in (0.01, 0.05):
        saver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert saver.stdout is not None
        saver.stdout.readline()
        time.sleep(moment)
        saver.kill()  # SIGKILL
        saver.wait()
        saver.stdout.close()
        if (tmp_path / "g").exists():
            assert load(tmp_path / "g").num_nodes == 300_000
    Graph.from_edges(EDGES).save(tmp_path / "g", overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == ["g"]


def test_what_is_no_path_is_refused() -> None:
    graph = Graph.from_edges([[0], [1]])
    with pytest.raises(FormatError, match="expected the path of a file or folder, got 3"):
        graph.save(3)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="expected the path of a file or folder, got 3"):
        load(3)  # type: ignore[arg-type]
