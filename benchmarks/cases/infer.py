"""Inference: rounds against plain kernels on web_google, and against predicting from records."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.graphs import communities, real, tiny
from benchmarks.measure import Study, agree
from weft import kernels
from weft.graph import Graph
from weft.layers.stack import Stack
from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring
from weft.strategies.records.batch_blocks import WholeGraph
from weft.strategies.records.record_loader import RecordFiles, RecordLoader
from weft.train.model import adapt

WIDTH, CLASSES = 128, 16
ROUNDS = 3
LIMIT = 1.5  # of the plain kernels' time
FEWER, FASTER = 4.0, 3.0  # evaluations, and time, of predicting from records


def plain_kernels(model: Stack, graph: Graph) -> Tensor:
    """Return three layers of GCN written out: a product, a sum over neighbours, a bias, a ReLU."""
    h = graph.x
    scale = graph.in_degree().clamp(min=1).rsqrt()
    for number, layer in enumerate(model.layers):
        weights: Any = dict(layer.named_parameters())
        weight = next(value for value in weights.values() if value.dim() == 2)
        bias = next(value for value in weights.values() if value.dim() == 1)
        h = kernels.spmm(graph.indptr, graph.indices, h @ weight.T, src_scale=scale, dst_scale=scale) + bias
        h = h.relu_() if number + 1 < len(model.layers) else h
    return h


def timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a step, and what it gave."""
    began = time.perf_counter()
    made = step()
    return time.perf_counter() - began, made


def web_google() -> Iterator[str]:
    """Give the rows of three layers on web_google."""
    graph = communities(100_000, 1_000_000, features=4) if tiny() else real("web_google")
    x = torch.randn(graph.num_nodes, WIDTH, generator=torch.Generator().manual_seed(0))
    graph = adapt(graph.with_data(x=x), "gcn")
    model = Stack(WIDTH, CLASSES, layer="gcn", layers=3, hidden=WIDTH).eval()
    plain, rounds, whole = [], [], []
    yield "| GCN, 3 layers, 128 features | seconds | to plain kernels |"
    yield "|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="weft-infer-") as held, torch.no_grad():
        out = Path(held) / "out"
        for _ in range(ROUNDS + 1):  # the first warms up
            seconds, expected = timed(lambda: plain_kernels(model, graph))
            plain.append(seconds)
            seconds, told = timed(lambda: infer_model(model_scoring(model, graph), out, overwrite=True))
            rounds.append(told["seconds"]["rounds"])
            whole.append(seconds)
        check(out, expected)
    base = statistics.median(plain[1:])
    for name, seconds in (
        ("plain kernels", plain),
        (f"weft infer, the rounds (at most {LIMIT:g})", rounds),
        ("weft infer, with Parquet of outputs and embeddings", whole),
    ):
        middle, least, most = statistics.median(seconds[1:]), min(seconds[1:]), max(seconds[1:])
        yield f"| {name} | {middle:.2f} ({least:.2f}–{most:.2f}) | {middle / base:.2f} |"


def check(out: Path, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Raise unless the outputs of a folder are those expected."""
    import pyarrow.parquet as pq

    column = pq.read_table(out / "predictions.parquet").column("output").combine_chunks()
    found = torch.from_numpy(column.flatten().to_numpy(zero_copy_only=False).copy())
    agree({"weft": found.reshape(expected.shape), "plain": expected}, tolerance)


def against_flatten() -> Iterator[str]:
    """Give the rows of GraphInfer and of flattening every neighbourhood, then predicting."""
    graph = communities(20_000, 200_000, features=64)
    model = Stack(graph.x.shape[1], graph.num_classes, layer="sage", layers=2, hidden=64).eval()
    yield f"| {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, 2 layers | layer evaluations | seconds |"
    yield "|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="weft-infer-") as held, torch.no_grad():
        folder = Path(held)
        graph.save(folder / "graph")
        expected = model(graph.block(), graph.x)
        ours = {}
        for engine in ("torch", "duckdb"):
            scoring = model_scoring(model, graph)
            seconds, told = timed(
                lambda scoring=scoring, engine=engine: infer_model(  # type: ignore[misc]
                    scoring, folder / engine, setting=Setting(engine)
                )
            )
            check(folder / engine, expected)
            ours[engine] = (told["evaluations"], seconds)
            yield f"| weft infer --engine {engine} | {told['evaluations']:,} | {seconds:.2f} |"
        joined, _ = timed(
            lambda: flatten(folder / "graph", folder / "records", fanout=[-1, -1], targets="all", limit=None)
        )
        seconds, (evaluations, found) = timed(lambda: predict_records(model, graph, folder / "records"))
        agree({"records": found, "whole": expected})
        yield f"| weft flatten, all edges of 2 hops | | {joined:.2f} |"
        yield f"| then predicting, batches of {BATCH} records | {evaluations:,} | {seconds:.2f} |"
    for engine, (count, spent) in ours.items():
        fewer, faster = evaluations / count, (joined + seconds) / spent
        told = f"| {engine} against both (≥ {FEWER:g} and ≥ {FASTER:g}) "
        yield f"{told}| **{fewer:.1f}×** | **{faster:.1f}×** |"


BATCH = 64


def predict_records(model: Stack, graph: Graph, records: Path) -> tuple[int, Tensor]:
    """Return how many rows of layers were computed, and the outputs of all nodes in order."""
    files = RecordFiles.open(records)
    loader = RecordLoader(files, WholeGraph(graph), batch_size=BATCH, threads=2)
    found = torch.zeros(graph.num_nodes, graph.num_classes)
    evaluations = 0
    for batch in loader:
        found[batch.seeds] = model(batch.blocks, batch.x)[: len(batch.seeds)]
        evaluations += sum(block.num_dst for block in batch.blocks)
    return evaluations, found


CASES = [
    Study(
        "infer_web_google",
        "weft infer --engine torch on web_google, 128 features, 3 layers",
        web_google,
        note="Median of three, by turns. The rounds are what the plain kernels compute, every layer once a "
        "node; outputs are compared before. Reading the graph is in neither.",
    ),
    Study(
        "graphinfer_vs_flatten",
        "GraphInfer against flattening neighbourhoods, then predicting",
        against_flatten,
        note="A layer evaluation is one row of one layer. All three give the same outputs, which is checked. "
        "Records of a batch share the nodes that they have in common.",
    ),
]
