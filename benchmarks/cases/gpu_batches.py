"""Sampled epochs and training in bounded memory on a GPU; without one there are no such cases."""

import functools
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from benchmarks.gpu import SIZES, skewed
from benchmarks.measure import Study
from weft.graph.build import Parts
from weft.graph.graph import Graph
from weft.graph.topology import Csr, Topology
from weft.samplers import NeighborSampler
from weft.samplers.loader import Loader
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.offload.chunks import shown
from weft.strategies.single import Single
from weft.train.optim import make_optimizer

FEATURES, CLASSES, SEEDS = 100, 47, 196_615
FANOUT, BATCH, HIDDEN = (15, 10, 5), 1024, 256
RIVAL_BATCHES = 40
THREADS = 12
LIMIT = 8 << 30


@functools.cache
def products() -> Graph:
    """Return a graph of the size of ogbn-products on the host: 100 features, 47 classes, 196,615 seeds."""
    block = skewed("products")
    num_nodes, num_edges = SIZES["products"]
    edge_ids = torch.arange(num_edges, dtype=torch.int32)
    csr = Csr(block.indptr.cpu(), block.indices.cpu(), edge_ids, None)
    del block
    torch.cuda.empty_cache()
    generator = torch.Generator().manual_seed(1)
    train_mask = torch.zeros(num_nodes, dtype=torch.bool)
    train_mask[torch.randperm(num_nodes, generator=generator)[:SEEDS]] = True
    data: dict[str, Any] = {
        "x": torch.randn(num_nodes, FEATURES, generator=generator),
        "y": torch.randint(CLASSES, (num_nodes,), generator=generator),
        "train_mask": train_mask,
    }
    return Graph(Parts(Topology.from_csr(csr), {"node": data}, {}, node_offsets=[0, num_nodes]))


def timed(step: Callable[[], Any], repeat: int) -> float:
    """Return the median seconds of a step, with what it left on the GPU."""
    times = []
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def kernel_seconds(step: Callable[[], Any]) -> float:
    """Return the seconds in which some kernel or copy ran on the GPU during a step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    found = [event.time_range for event in profile.events() if event.device_type.name == "CUDA"]
    busy, end = 0.0, 0.0
    for begin, stop in sorted((each.start, each.end) for each in found):
        busy += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return busy / 1e6


def sampled() -> Iterator[str]:
    """Yield the rows of one epoch of mini-batches."""
    yield "| | epoch | a step | GPU busy | GPU memory | to PyG |"
    yield "|---|---|---|---|---|---|"
    ways: dict[str, dict[str, Any]] = {
        "weft, all on the GPU": {"prepare": 1},
        "weft, all on the GPU, bfloat16": {"prepare": 1, "autocast": torch.bfloat16},
        "weft, features pinned on the host, 20 % cached": {
            "prepare": 1,
            "store": {"name": "cached", "capacity": 0.2},
        },
        f"weft, drawn by {THREADS} threads of the host": {"sample_on": "cpu", "prepare": THREADS},
    }
    found = {what: _sampled(options) for what, options in ways.items()}
    rival, name = pyg_seconds()
    for what, (seconds, busy, memory) in found.items():
        cells = f"{seconds:.2f} s | {seconds / steps() * 1e3:.2f} ms | {busy:.0%} | {shown(memory)}"
        yield f"| {what} | {cells} | {rival / seconds:.1f}× |"
    yield f"| {name} | {rival:.2f} s | {rival / steps() * 1e3:.2f} ms | – | – | 1 |"


def steps() -> int:
    """Return the steps of an epoch."""
    return -(-SEEDS // BATCH)


def _sampled(options: dict[str, Any]) -> tuple[float, float, int]:
    """Return the seconds of an epoch, the share of them in which kernels ran, and the peak of memory."""
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    device = torch.device("cuda")
    strategy = Sampled(products(), fanout=FANOUT, batch_size=BATCH, device=device, **options)
    model = weft.nn.Stack(FEATURES, CLASSES, layer="sage", layers=3, hidden=HIDDEN).to(device)
    optimizer = make_optimizer("adam", list(model.parameters()), lr=0.003)

    def epoch(between: Callable[[], bool] | None = None) -> float:
        return strategy.epoch(model, optimizer, between)

    epoch()
    seconds = timed(epoch, 3)
    memory = torch.cuda.max_memory_allocated()
    count = iter(range(1000))
    part = kernel_seconds(lambda: epoch(lambda: next(count) == 39))
    return seconds, part / 40 / (seconds / steps()), memory


class Rival(nn.Module):
    """PyG's model."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        widths = (FEATURES, HIDDEN, HIDDEN, CLASSES)
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for number, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if number < 2:
                x = F.dropout(x.relu(), 0.5, self.training)
        return x


def pyg_seconds() -> tuple[float, str]:
    """Return the seconds of an epoch of PyG's loop, from some of its batches, and what it was."""
    loader, name = pyg_loader()
    model = Rival().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    batches = iter(loader)

    def run(count: int) -> None:
        for _ in range(count):
            batch = next(batches).to("cuda", non_blocking=True)
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()

    run(8)
    seconds = timed(lambda: run(RIVAL_BATCHES), 1)
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    return seconds / RIVAL_BATCHES * steps(), f"{name}, from {RIVAL_BATCHES} of {steps()} batches"


def pyg_loader() -> tuple[Any, str]:
    """Return PyG's loader; where what it needs is not installed, our threads make its batches."""
    graph = products()
    if importlib.util.find_spec("pyg_lib") or importlib.util.find_spec("torch_sparse"):
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        data = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index)
        options: dict[str, Any] = {"num_workers": THREADS, "persistent_workers": True, "shuffle": True}
        nodes = graph.train_mask
        loader = NeighborLoader(data, list(FANOUT), nodes, batch_size=BATCH, **options)
        return loader, f"PyG, NeighborLoader with {THREADS} workers"
    sampler = NeighborSampler(graph, FANOUT, expand="once")
    loader = Loader(sampler, batch_size=BATCH, threads=THREADS, convert=lambda batch: batch.to_pyg())
    return loader, f"PyG's model, batches by {THREADS} threads of weft (no pyg-lib here for NeighborLoader)"


def offload() -> Iterator[str]:
    """Yield the rows of a full-graph epoch of GAT in bounded memory."""
    yield "| | epoch | GPU memory | moved over the link | of the link's bandwidth |"
    yield "|---|---|---|---|---|"
    graph, link = products(), link_bandwidth()
    for what, options in (
        (f"offload in {shown(LIMIT)}", {"activation": "offload", "memory": LIMIT}),
        ("offload in 4.0 GiB", {"activation": "offload", "memory": LIMIT // 2}),
        ("all on the GPU", {}),
    ):
        yield f"| {what} | {_offload_cells(graph, options, link)} |"


def _offload_cells(graph: Graph, options: dict[str, Any], link: float) -> str:
    torch.manual_seed(0)
    device = torch.device("cuda")
    model = weft.nn.Stack(FEATURES, CLASSES, layer="gat", layers=3, hidden=128, heads=4).to(device)
    optimizer = make_optimizer("adam", model, lr=0.003)
    strategy: Single = Single(graph if options else graph.to(device=device), device=device, **options)
    strategy.epoch(model, optimizer)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = strategy.layout.offload.moved if strategy.layout.offload is not None else 0
    seconds = timed(lambda: strategy.epoch(model, optimizer), 1)
    memory = shown(torch.cuda.max_memory_allocated())
    if strategy.layout.offload is None:
        return f"{seconds:.2f} s | {memory} | – | –"
    moved, count = strategy.layout.offload.moved - before, len(strategy.layout.offload.chunks(model))
    cells = f"{seconds:.2f} s | {memory} | {moved / 1e9:.1f} GB in {count} chunks a layer"
    return f"{cells} | {moved / seconds / 1e9:.1f} of {link / 1e9:.1f} GB/s, {moved / seconds / link:.0%}"


def link_bandwidth() -> float:
    """Return the bytes a second of a large copy from pinned memory to the GPU."""
    source = torch.empty(1 << 28, pin_memory=True)
    target = torch.empty_like(source, device="cuda")
    return source.nbytes / timed(lambda: target.copy_(source, non_blocking=True), 5)


def _cases() -> list[Study]:
    where = torch.cuda.get_device_name()
    batches = (
        f"Generated graph of the size of ogbn-products, {FEATURES} features, {SEEDS:,} seeds, batch {BATCH}, "
        "float32 unless said. GPU busy is the time in which kernels ran (profiled, 40 steps) over the time "
        "of the epoch (not profiled)."
    )
    chunks = (
        "Forward, backward and step of GAT 3 x 128, 4 heads, over a graph of the size of ogbn-products; "
        "graph, features and rows between layers lie in pinned memory of the host."
    )
    title = f"Sampled epoch, SAGE 3 x 256, fanout (15, 10, 5), products size, {where}"
    return [
        Study("gpu_sampled_epoch", title, sampled, batches),
        Study("gpu_offload", f"Training in bounded GPU memory, GAT, products size, {where}", offload, chunks),
    ]


CASES = _cases() if torch.cuda.is_available() else []
