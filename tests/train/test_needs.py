"""What ways of training take on a GPU grows with the graph and the model, and is told in one line."""

import torch

import weft
from weft.train.model import build_model
from weft.train.needs import feature_bytes, needs, out_of_memory, too_little


def test_the_needs_of_each_way(graph: weft.Graph) -> None:
    assert graph.x is not None
    assert feature_bytes(graph) == graph.x.nbytes
    narrow, wide = (needs(graph, build_model(graph, "sage", {"hidden": width})) for width in (8, 512))
    assert wide["single"] > 5 * narrow["single"]
    assert wide["single"] > graph.num_nodes * 512 * 4 * 3
    told = too_little(wide, 1 << 20)
    assert "single" not in told.split("; ")[0]
    assert "1.0 MiB are free; single with activation = 'offload' about" in told
    assert "sampled about" in told


def test_a_run_that_found_no_memory_says_what_would_fit(graph: weft.Graph) -> None:
    model = build_model(graph, "gat", {"hidden": 8})
    assert "the GPU has no memory left. train.device:" in out_of_memory(graph, model, torch.device("cpu"))
    assert "use more parts" in out_of_memory(None, model, torch.device("cpu"))
