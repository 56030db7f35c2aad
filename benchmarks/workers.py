"""Runs on several ranks, described in one file: `launch` starts them and returns what they saw.

A spec lists runs: a strategy with its options on a partition, for some epochs. All runs of a spec are made by
the same processes, one after the other, and each gives epoch times, bytes by layer and direction, exposed
and hidden seconds, skipped exchanges, memory, and scores where asked.
"""

import ctypes
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

# What travels once, or is not of a layer: everything else is what exchanges are about.
NOT_HALO = {
    "gradient",
    "evaluate",
    "control",
    "plan",
    "features",
    "norm",
    "barrier",
    "drain",
    "other",
    "drift",
}


@dataclass(frozen=True)
class Run:
    """One run of a spec."""

    name: str
    folder: str
    """The partition, or for `single` the graph."""
    strategy: str = "halo"
    options: dict[str, Any] = field(default_factory=dict)
    model: str = "sage"
    model_options: dict[str, Any] = field(default_factory=dict)
    epochs: int = 5
    warm: int = 2
    """Epochs before those that are measured."""
    lr: float = 0.01
    seed: int = 0
    evaluate_every: int = 0
    """Epochs between evaluations; 0: never."""
    transfers: list[int] = field(default_factory=list)
    """Instead of training: the exchanges of an epoch alone, forward and back, of rows of these widths."""
    memory: bool = False


def launch(
    runs: Sequence[Run], workers: int, *, env: Mapping[str, str] | None = None, starter: Any = None
) -> list[dict[str, Any]]:
    """Return the results of all runs, made by that many ranks on this machine; raises when they fail."""
    from weft.comm import run_workers

    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        spec, out = Path(folder) / "spec.json", Path(folder) / "out.json"
        body = {"runs": [asdict(run) for run in runs], "out": str(out), "launched": time.time()}
        spec.write_text(json.dumps(body))
        command = [sys.executable, "-m", "benchmarks.workers", str(spec)]
        settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **(env or {})}
        code = (starter or run_workers)(command, workers, env=settings)
        if code:
            raise RuntimeError(f"the ranks ended with exit code {code}")
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found


def halo_bytes(result: Mapping[str, Any], slot: int | None = None) -> float:
    """Return the bytes an epoch that all ranks sent for one exchange of a step, or for all, both ways."""
    return (
        sum(
            volume["bytes_sent"]
            for volume in result["volumes"]
            if volume["kind"] not in NOT_HALO and slot in (None, volume["slot"])
        )
        / result["epochs"]
    )


def avoided(result: Mapping[str, Any]) -> float:
    """Return the share of exchanges that were decided about and not made."""
    return float(result["skipped"]) / max(1, result["skipped"] + result["made"])


def median(result: Mapping[str, Any]) -> float:
    """Return the median seconds of an epoch."""
    return sorted(result["seconds"])[len(result["seconds"]) // 2]


# What a rank does


def main(spec: str) -> int:
    """Make all runs of a spec as one rank."""
    from weft.comm import Group

    body = json.loads(Path(spec).read_text())
    _warm_up()
    with Group.connect(join_timeout=120) as group:
        results = [_run(Run(**run), group, body["launched"]) for run in body["runs"]]
    if group.rank == 0:
        Path(body["out"]).write_text(json.dumps(results))
    return 0


def _warm_up() -> None:
    """Load what any run loads, so that memory above this is the run's own."""
    import weft.train.model
    import weft.train.workers.run_parts  # noqa: F401
    from weft.kernels import native
    from weft.strategies.base import strategies

    strategies.names()
    native.available()
    weight = torch.ones(64, 64, requires_grad=True)
    (torch.ones(64, 64) @ weight).sum().backward()  # type: ignore[no-untyped-call]
    torch.optim.Adam([weight]).step()  # the first step of an optimiser loads a hundred MiB of torch


def _run(run: Run, group: Any, launched: float) -> dict[str, Any]:
    before = _resident()
    began = time.perf_counter()
    strategy, local = _strategy(run, group)
    group.barrier()
    ready = {"start_seconds": time.time() - launched, "setup_seconds": time.perf_counter() - began}
    held = _resident() - before
    measured = _transfers(run, strategy, group) if run.transfers else _train(run, strategy, local, group)
    peak = max(_peak(), measured.pop("earlier_peak", 0))
    mine = {**measured, **ready, "memory_held": held, "memory_peak": peak - before}
    everyone = group.all_gather_json(mine)
    result: dict[str, Any] = {**everyone[0], "name": run.name, "epochs": run.epochs}
    result["volumes"] = [volume for each in everyone for volume in each["volumes"]]
    for name in ("exposed_seconds", "hidden_seconds", "cpu_seconds"):
        result[name] = [each[name] / run.epochs for each in everyone]
    for name in ("skipped", "made"):
        result[name] = sum(each[name] for each in everyone)
    for name in ("memory_held", "memory_peak", "activations", "shard_bytes", "halo_rows", "epoch_peak"):
        result[name] = [each.get(name, 0) for each in everyone]
    strategy.close()
    return result


def _strategy(run: Run, group: Any) -> tuple[Any, Any]:
    """Return the strategy on what this rank holds."""
    import weft
    from weft.strategies.base import strategies
    from weft.train.workers.run_parts import read_parts

    if run.strategy == "single":
        graph = weft.load(run.folder)
        return strategies["single"](graph, seed=run.seed), graph
    local, _ = read_parts(Path(run.folder), rank=group.rank, workers=group.size, dtype=torch.float32)
    return strategies[run.strategy](local, seed=run.seed, group=group, **run.options), local


def _train(run: Run, strategy: Any, local: Any, group: Any) -> dict[str, Any]:
    from weft.tasks.metrics import METRICS
    from weft.train.model import build_model, ready

    built = build_model(local, run.model, run.model_options, seed=run.seed)
    model = ready(built, device=torch.device("cpu"), dtype=torch.float32)
    optimizer = torch.optim.Adam(strategy.parameters(model), lr=run.lr)
    best = {"val": -1.0, "test": 0.0}
    seconds: list[float] = []
    kept, peak = _Kept(), _Peak()
    cpu = 0.0
    for epoch in range(run.warm + run.epochs):
        if epoch == run.warm:
            group.barrier()
            group.ledger.clear()
            cpu = time.process_time()
        began = time.perf_counter()
        last = epoch == run.warm + run.epochs - 1
        with kept if run.memory and epoch == 0 else peak if run.memory and last else _nothing():
            loss = strategy.epoch(model, optimizer)
        seconds.append(time.perf_counter() - began)
        if run.evaluate_every and (epoch + 1) % run.evaluate_every == 0:
            scores = strategy.evaluate(model, {"accuracy": METRICS["accuracy"]})
            if scores["val"]["accuracy"] > best["val"]:
                best = {split: scores[split]["accuracy"] for split in ("val", "test")}
    taken = group.ledger.snapshot()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    plan = getattr(getattr(strategy.layout, "exchange", None), "whole_plan", None)
    return {
        **_volumes(taken, time.process_time() - cpu),
        "seconds": seconds[run.warm :],
        "loss": loss,
        "test": best["test"],
        "val": best["val"],
        "activations": kept.bytes + 4 * parameters,  # gradients and the two moments of Adam
        "shard_bytes": _shard_bytes(local),
        "halo_rows": 0 if plan is None else plan.num_halo,
        "epoch_peak": peak.bytes,
        "earlier_peak": peak.earlier,
    }


def _transfers(run: Run, strategy: Any, group: Any) -> dict[str, Any]:
    """Bring rows and return gradients as an epoch would, with nothing computed between."""
    plan = strategy.layout.exchange.whole_plan
    back = plan.reversed()
    rows, halo = ([torch.ones(n, width) for width in run.transfers] for n in (plan.num_rows, plan.num_halo))
    seconds = []
    for turn in range(run.warm + run.epochs):
        if turn == run.warm:
            group.ledger.clear()
        group.barrier()
        began = time.perf_counter()
        for held in rows:
            plan.pull(group, held).wait()
        for held in halo:
            back.pull(group, held).then(plan.sum_at_owner).wait()
        group.barrier()
        seconds.append(time.perf_counter() - began)
    return {**_volumes(group.ledger.snapshot(), 0.0), "seconds": seconds[run.warm :]}


def _volumes(taken: Mapping[str, Any], cpu: float) -> dict[str, Any]:
    names = ("volumes", "exposed_seconds", "hidden_seconds", "skipped", "made")
    return {**{name: taken[name] for name in names}, "cpu_seconds": cpu}


class _Kept:
    """Counts the bytes that autograd keeps for backward, each storage once."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.hooks: Any = None

    @property
    def bytes(self) -> int:
        return sum(self.seen.values())

    def __enter__(self) -> "_Kept":
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            self.seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        self.hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.hooks.__exit__(*error)


class _Peak:
    """Measures by how much the resident size rises above the present one."""

    bytes = earlier = 0

    def __enter__(self) -> None:
        self.earlier = _peak()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not hide what is taken now
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        self.before = _resident()

    def __exit__(self, *_: object) -> None:
        self.bytes = max(0, _peak() - self.before)


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _shard_bytes(local: Any) -> int:
    shard = getattr(local, "shard", None)
    if shard is None:
        return 0
    tensors = [value for value in vars(shard).values() if isinstance(value, torch.Tensor)]
    tensors += [v for data in shard.node_data.values() for v in data.values() if isinstance(v, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in [*tensors, *shard.edge_data.values()])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    from weft.comm import guarded

    sys.exit(guarded(lambda: main(sys.argv[1])))
