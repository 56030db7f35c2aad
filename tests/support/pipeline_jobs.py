"""What ranks do in the tests of pipelines, and one process that computes delayed updates in another way."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from halo_jobs import far, graph_of, local_graph
from hub_jobs import on_parts
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.func import functional_call

from weft.comm.group import Group
from weft.config import make_recipe
from weft.events import read_events
from weft.graph.graph import Graph
from weft.graph.parts.shard import Shard, make_shards
from weft.samplers.loader import Loader
from weft.samplers.neighbor import NeighborSampler
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.pipeline.pipeline import Pipeline
from weft.train.model import adapt, build_model, ready
from weft.train.saved.checkpoint import optimizer_state
from weft.train.trainer import Place
from weft.train.workers.worker import prepare, run_worker

EPOCHS = 2


@dataclass(frozen=True)
class Case:
    """A pipeline to train."""

    layers: tuple[int, ...]
    schedule: str
    options: dict[str, Any] = field(default_factory=dict)
    layer: str = "sage"
    model: dict[str, Any] = field(default_factory=dict)
    kind: str = "directed"
    batch_size: int = 6
    optimizer: str = "adam"
    replicas: tuple[int, ...] | None = None

    @property
    def each(self) -> tuple[int, ...]:
        """The replicas of each stage."""
        return self.replicas or (1,) * len(self.layers)

    @property
    def depth(self) -> int:
        """The layers of the model."""
        return sum(self.layers)

    @property
    def micro(self) -> int:
        """The micro-batches of a step."""
        return int(self.options.get("micro_batches", 4))

    def __str__(self) -> str:
        return f"{self.schedule} {list(self.layers)} x {list(self.each)} {self.options} {self.layer}"


def two_stages() -> list[Case]:
    """Return what two workers train."""
    norm = {"norm": "batch"}
    return [
        Case((2, 1), "gpipe", {"micro_batches": 3}, model=norm),
        Case((1, 2), "gpipe", {"micro_batches": 3, "recompute": True}, model=norm),
        Case((1, 1), "gpipe", {"micro_batches": 1}, "gat", kind="hub", batch_size=7),
        Case((1, 2), "1f1b", {"versions": "stash"}, model=norm),
        Case((2, 1), "1f1b", {"versions": "stash", "recompute": True, "prepare": 0}, model=norm),
        Case((1, 1), "1f1b", {"versions": "vertical"}, "gcn", kind="hub", optimizer="sgd"),
        Case((2,), "1f1b", {}, replicas=(2,)),
    ]


def four_stages() -> list[Case]:
    """Return what four workers train."""
    norm, deep = {"norm": "batch"}, (1, 1, 1, 1)
    return [
        Case(deep, "gpipe", {"micro_batches": 4}, model=norm, batch_size=9),
        Case((1, 2, 1, 1), "gpipe", {"micro_batches": 3, "recompute": True}, model=norm),
        Case(deep, "1f1b", {"versions": "stash"}, model=norm, batch_size=3),
        Case(deep, "1f1b", {"versions": "stash", "recompute": True}, model=norm, batch_size=3),
        Case(deep, "1f1b", {"versions": "vertical"}, batch_size=2),
        Case(deep, "1f1b", {"versions": "vertical", "recompute": True}, "gat", batch_size=3),
        Case((1, 1), "1f1b", {"versions": "stash"}, replicas=(2, 2), batch_size=3),
        Case((1, 1), "1f1b", {"versions": "vertical"}, replicas=(2, 2), batch_size=3),
        Case((2, 1, 1), "1f1b", {"versions": "stash"}, replicas=(1, 2, 1), batch_size=3),
        Case((1, 2), "1f1b", {"versions": "stash"}, replicas=(3, 1), batch_size=3),
        Case((1, 2), "1f1b", {"versions": "stash"}, replicas=(1, 3), batch_size=3),
    ]


def held(case: Case) -> tuple[Graph, nn.Module]:
    """Return the graph, and the model with its first weights."""
    graph = adapt(graph_of(case.kind), case.layer)
    model = build_model(graph, case.layer, {"hidden": 8, "layers": case.depth, **case.model}, seed=1)
    return graph, ready(model, device=torch.device("cpu"), dtype=torch.float32)


def made(case: Case, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser of a case."""
    if case.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    return torch.optim.Adam(parameters, lr=0.02)


def staged(group: Group, case: Case) -> dict[str, Any]:
    """Train a case on the ranks of a group; return losses, weights and what was in flight."""
    graph, model = held(case)
    parts = (torch.arange(graph.num_nodes) % group.size).int()
    local = local_graph(group, graph, parts, group.size)
    whole = Shard.merge(make_shards(graph, parts))
    strategy = Pipeline(
        local,
        seed=3,
        group=group,
        whole=lambda features: whole,
        stages=list(case.layers),
        replicas=list(case.each),
        schedule=case.schedule,  # type: ignore[arg-type]
        fanout=[2] * case.depth,
        batch_size=case.batch_size,
        **case.options,
    )
    strategy.check_model(model)
    optimizer = made(case, strategy.parameters(model))
    losses = [strategy.epoch(model, optimizer) for _ in range(EPOCHS)]
    told = strategy.batching.epoch_fields()["pipeline"]
    strategy.gather_weights(model)
    kept = strategy.reducer.joined_state(optimizer, optimizer_state(optimizer)[0])
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    outputs = strategy.predict(model)
    strategy.close()
    return {"losses": losses, "told": told, "weights": weights, "kept": kept, "outputs": outputs}


def depths(case: Case) -> list[int]:
    """Return the micro-batches in flight of a stage: what is behind it must be kept busy."""
    if all(each == 1 for each in case.each):
        return [len(case.layers) - stage for stage in range(len(case.layers))]
    found = [1]
    for stage in reversed(range(len(case.layers) - 1)):
        own, after = case.each[stage], case.each[stage + 1]
        least = -(-sum(case.each[stage:]) // own)
        found.insert(0, max(least, 2 + (found[0] * after - 2) // own))
    return found


class Delayed:
    """One process that computes what a pipeline should: whole models of mixed versions, no stages.

    Each stage has its own list of all versions that ever were, and its own optimiser.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.graph, self.model = held(case)
        self.names = [[n for n, _ in self.model.named_parameters() if self.home(n) == s] for s in self.stages]
        self.masters = [
            {n: nn.Parameter(p.detach().clone()) for n, p in self.model.named_parameters() if n in names}
            for names in self.names
        ]
        self.optimizers = [made(case, list(each.values())) for each in self.masters]
        sampler = NeighborSampler(self.graph, [2] * case.depth, seed=3)
        self.loader = Loader(sampler, batch_size=case.batch_size, threads=0)
        self.losses: list[float] = []

    @property
    def stages(self) -> range:
        return range(len(self.case.layers))

    def home(self, name: str) -> int:
        """Return the stage of a weight."""
        kind, number, *_ = name.split(".")
        layer = int(number) if kind in ("layers", "norms") else self.case.depth - 1
        ends = torch.tensor(self.case.layers).cumsum(0)
        return int((ends <= layer).sum())

    def train(self) -> "Delayed":
        self.model.train()
        for epoch in range(EPOCHS):
            self.flush(epoch) if self.case.schedule == "gpipe" else self.flow(epoch)
        self.model.load_state_dict({n: p for each in self.masters for n, p in each.items()}, strict=False)
        return self

    def flush(self, epoch: int) -> None:
        """Accumulate the gradients of micro-batches, then update."""
        total, count = 0.0, 0
        for step in range(len(self.loader)):
            seeds = self.loader.seeds_of(epoch, step)
            versions = [self.frozen(stage) for stage in self.stages]
            sums: dict[str, Tensor] = {}
            for share in seeds.tensor_split(min(self.case.micro, len(seeds))):
                loss, found = self.backward(epoch, step, share, versions, len(seeds))
                total += loss * len(seeds)
                for name, value in found.items():
                    sums[name] = sums[name] + value if name in sums else value
            count += len(seeds)
            for stage in self.stages:
                self.update(stage, sums)
        self.losses.append(total / count)

    def flow(self, epoch: int) -> None:
        """Update after each round of batches, by gradients of weights that are some updates old."""
        total, count, depth = 0.0, 0, depths(self.case)
        versions = [[self.frozen(stage)] for stage in self.stages]
        sums: list[dict[str, Tensor]] = [{} for _ in self.stages]
        batches = len(self.loader)
        for b in range(batches):
            used = []
            for stage in self.stages:
                lag = depth[0] if self.case.options.get("versions") == "vertical" else depth[stage]
                used.append(versions[stage][max(0, b // self.case.each[stage] - lag + 1)])
            seeds = self.loader.seeds_of(epoch, b)
            loss, found = self.backward(epoch, b, seeds, used, len(seeds))
            total, count = total + loss * len(seeds), count + len(seeds)
            for stage in self.stages:
                each = self.case.each[stage]
                for name in self.names[stage]:
                    held = sums[stage].get(name)
                    sums[stage][name] = found[name] if held is None else held + found[name]
                if (b + 1) % each == 0 or b + 1 == batches:
                    size = b % each + 1
                    self.update(stage, {n: g if size == 1 else g / size for n, g in sums[stage].items()})
                    sums[stage] = {}
                    versions[stage].append(self.frozen(stage))
        self.losses.append(total / count)

    def frozen(self, stage: int) -> dict[str, Tensor]:
        return {n: p.detach().clone().requires_grad_() for n, p in self.masters[stage].items()}

    def backward(
        self, epoch: int, step: int, seeds: Tensor, versions: list[dict[str, Tensor]], count: int
    ) -> tuple[float, dict[str, Tensor]]:
        """Run the whole model with the weights of some versions; return the loss and its gradients."""
        batch = self.loader.sampler.sample(seeds, epoch, step)
        batch.set_clock(torch.tensor([3, epoch, step]))
        weights = {name: value for each in versions for name, value in each.items()}
        rows = functional_call(self.model, weights, (batch.blocks, batch.x))
        assert batch.y is not None
        loss = F.cross_entropy(rows, batch.y, reduction="sum") / count
        found = torch.autograd.grad(loss, list(weights.values()))
        return float(loss.detach()), dict(zip(weights, found))

    def update(self, stage: int, gradients: dict[str, Tensor]) -> None:
        for name, master in self.masters[stage].items():
            master.grad = gradients[name]
        self.optimizers[stage].step()


def differences(group: Group, cases: list[Case]) -> list[str]:
    """Train cases on ranks, and return where they are not, bit for bit, what one process computes."""
    wrong = []
    for case in cases:
        found = staged(group, case)
        wrong += [f"{case}: {what}" for what in _bounds(case, found["told"])]
        if group.rank:
            continue
        truth = Delayed(case).train()
        for name, value in truth.model.state_dict().items():
            other = found["weights"][name]
            if not torch.equal(other, value):
                wrong.append(f"{case}: {name} differs by {far(other.double(), value.double()):.1e}")
        if found["losses"] != [float(each) for each in truth.losses]:
            wrong.append(f"{case}: losses {found['losses']} are not {truth.losses}")
    return wrong


def _bounds(case: Case, told: dict[str, Any]) -> list[str]:
    """Return what is wrong with what was in flight, and alive."""
    wrong, depth = [], depths(case)
    for each in told["workers"]:
        stage = each["stage"]
        most = case.micro if case.schedule == "gpipe" else depth[stage]
        if not 1 <= each["in_flight"] <= most:
            wrong.append(f"stage {stage} had {each['in_flight']} in flight, {most} allowed")
        alive = 1 if case.schedule == "gpipe" else depth[stage]
        alive = depth[0] if case.options.get("versions") == "vertical" else alive
        if each["versions"] > alive:
            wrong.append(f"stage {stage} kept {each['versions']} versions, {alive} allowed")
    return wrong


def flush_is_sampled(group: Group) -> list[str]:
    """Return where a flush is not the batch of one process: of one micro-batch its bits, else rounding."""
    wrong = []
    for micro in (1, 3):
        case = Case((1, 1), "gpipe", {"micro_batches": micro}, batch_size=6)
        found = staged(group, case)
        graph, model = held(case)
        single = Sampled(graph, seed=3, fanout=[2] * case.depth, batch_size=case.batch_size)
        optimizer = made(case, single.parameters(model))
        losses = [single.epoch(model, optimizer) for _ in range(EPOCHS)]
        for name, value in model.state_dict().items():
            distance = far(found["weights"][name].double(), value.double())
            if distance > (0.0 if micro == 1 else 1e-5):
                wrong.append(f"{micro} micro-batches: {name} differs by {distance:.1e}")
        if abs(losses[-1] - found["losses"][-1]) > 1e-5:
            wrong.append(f"{micro} micro-batches: loss {found['losses']}, expected {losses}")
        if far(found["outputs"].double(), single.predict(model).double()) > 1e-5:
            wrong.append(f"{micro} micro-batches: predictions differ")
        kept = optimizer_state(optimizer)[0]
        if {n: v.shape for n, v in kept.items()} != {n: v.shape for n, v in found["kept"].items()}:
            wrong.append("the state of the optimiser is another than that of one process")
    return wrong


def recipe(epochs: int = 3, **strategy: Any) -> dict[str, Any]:
    """Return the sections of a small recipe."""
    how = {"fanout": 2, "batch_size": 16, "partitioner": "range", **strategy}
    return {
        "data": {"name": "community", "nodes": 60, "degree": 4, "features": 6, "classes": 3},
        "model": {"name": "sage", "layers": 3, "hidden": 8, "norm": "layer"},
        "strategy": {"name": "pipeline", **how},
        "train": {"epochs": epochs, "restore_best": False, "eval_every": 2},
    }


def run(group: Group, sections: dict[str, Any], folder: Path, *, resume: bool = False, stop: int = 0) -> None:
    """Train a recipe as the ranks of a group; `stop`: leave after so many asks between steps."""
    made = make_recipe(sections)
    group.prepare(lambda: prepare(made, folder, workers=group.size))
    asked = [0]

    def stopped() -> bool:
        asked[0] += 1
        return 0 < stop <= asked[0]

    run_worker(made, Place(out=folder, resume=resume, stop=stopped), group)


def sessions(group: Group, folder: str) -> list[str]:
    """Return what differs where a run is left, within an epoch too, and continued; and what auto plans."""
    wrong, ways = [], [{"stages": 2}, {"stages": [1, 2], "schedule": "1f1b"}]
    ways += [{"plan": "hydrozoa", "grow": {"every": 1, "factor": 1.5}}]
    for place, way in enumerate(ways):
        at = Path(folder) / str(place)
        run(group, recipe(**way), at / "whole")
        run(group, recipe(**way), at / "cut", stop=2)
        run(group, recipe(**way), at / "cut", resume=True)
        group.barrier()
        files = [load_file(at / kind / "model.safetensors") for kind in ("whole", "cut")]
        wrong += [f"{way}: {name}" for name in files[0] if not torch.equal(files[0][name], files[1][name])]
        if group.rank == 0:
            told = [
                [
                    (e["loss"], e["pipeline"]["rounds"])
                    for e in read_events(at / kind)
                    if e["event"] == "epoch"
                ]
                for kind in ("whole", "cut")
            ]
            wrong += [] if [loss for loss, _ in told[0]] == [loss for loss, _ in told[1]] else [f"{told}"]
            planned = (at / "whole" / "stages.json").exists()
            wrong += [] if planned == ("plan" in way) else [f"{way}: planned {planned}"]
            if "grow" in way and [rounds for _, rounds in told[0]] != sorted(
                {rounds for _, rounds in told[0]}, reverse=True
            ):
                wrong.append(f"steps of growing batches: {told[0]}")
    return wrong


def two(group: Group, folder: str) -> list[str]:
    """Return all that is wrong on two workers."""
    return differences(group, two_stages()) + flush_is_sampled(group) + sessions(group, folder)


def four(group: Group) -> list[str]:
    """Return all that is wrong on four workers."""
    return differences(group, four_stages())


def dealt(group: Group) -> list[str]:
    """Return all that is wrong where two processes hold the four places of a pipeline, in threads."""
    every, wrong = four_stages(), []
    cases = [every[0], every[3], every[6]]
    for deal in ([0, 1, 0, 1], [0, 0, 0, 1]):
        found = on_parts(group, deal, f"stages{deal}", partial(differences, cases=cases))
        wrong += [f"part {part}: {each}" for part in sorted(found) for each in found[part]]
        wrong += [] if len(found) == deal.count(group.rank) else [f"{deal}: parts failed"]
    return wrong
