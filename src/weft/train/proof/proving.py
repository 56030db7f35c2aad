"""Runs the cases of the proof on the ranks of a group, and says how far each was from one process."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.plan import spread
from weft.errors import WeftError, WorkerLost
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import Shard, make_shards
from weft.strategies.base import Strategy, strategies
from weft.strategies.local import LocalGraph
from weft.strategies.single import Single
from weft.tasks.base import Task
from weft.train.model import adapt, build_model, ready
from weft.train.proof.cases import BOUNDS, MODELS, TYPES, Case, Pair
from weft.train.proof.graphs import edge_parts, make_graph, node_parts, num_parts
from weft.train.proof.tasks import make_task

SEED = 3
STEPS = 3
RATE = 0.03
"""At 0.1 a regression by MoNet on a typed graph diverges, and float32 with it."""


@dataclass(frozen=True)
class Outcome:
    """How far a case was from one process, on the rank where it was farthest."""

    pair: str
    case: str
    workers: int
    error: float
    """Largest |Δ| over max(1, largest |reference|), of everything that was compared."""
    bound: float
    worst: str = ""
    """What was farthest."""
    refused: str = ""
    """Why the strategy does not take such a model, where it does not."""

    @property
    def holds(self) -> bool:
        """Whether it is equal, or refused by name."""
        return bool(self.refused) or self.error <= self.bound


@dataclass(frozen=True)
class Observed:
    """What a strategy did to a model: values that all ranks have, and outputs of the rows that one has."""

    values: dict[str, Tensor]
    ids: Tensor
    outputs: list[Tensor]
    """Of each step, in training mode, a row for each of `ids`."""


def prove(
    group: Group, cases: Sequence[Case], *, told: Callable[[int, Case], None] | None = None
) -> list[Outcome]:
    """Compare every case with one process and return the outcomes, the same on every rank.

    All ranks of the group call it with the same cases; `told` hears the number of those done and the next.
    """
    outcomes = []
    for number, case in enumerate(cases):
        if told is not None:
            told(number, case)
        outcomes.append(_prove(group, case))
        group.drain()
    return worst_of_ranks(group, outcomes)


def observe(strategy: Strategy, model: nn.Module, *, rate: float = RATE) -> Observed:
    """Take steps of SGD and return losses, outputs, gradients of the first and the last step, and weights."""
    seen: list[tuple[Tensor, Tensor]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], outputs: Tensor) -> None:
        if module.training:
            seen.append((inputs[0][0].dst_ids, outputs.detach().clone()))

    strategy.task.begin(model)
    optimizer = torch.optim.SGD(strategy.parameters(model), lr=rate)
    hook = model.register_forward_hook(note)
    values: dict[str, Tensor] = {}
    losses = []
    for step in range(1, STEPS + 1):
        losses.append(strategy.epoch(model, optimizer))
        if step in (1, STEPS):
            values |= {f"gradient of {name}, step {step}": grad for name, grad in _gradients(model)}
    values["losses"] = torch.tensor(losses, dtype=torch.float64)
    values |= {f"weights {name}, step {STEPS}": value.clone() for name, value in model.state_dict().items()}
    scores = strategy.evaluate(model, strategy.task.metrics)
    values |= {f"{split} {name}": torch.tensor(v) for split in scores for name, v in scores[split].items()}
    values["outputs of evaluation"] = strategy.predict(model)
    strategy.close()
    hook.remove()
    return Observed(values, seen[0][0], [outputs for _, outputs in seen])


def farthest(observed: Observed, reference: Observed) -> tuple[float, str]:
    """Return the largest distance to the reference, and of what."""
    distances = {name: _far(observed.values.get(name), value) for name, value in reference.values.items()}
    rows = observed.ids.to(reference.ids.device)
    for step, (mine, theirs) in enumerate(zip(observed.outputs, reference.outputs, strict=True), 1):
        distances[f"outputs of step {step}"] = _far(mine, theirs[rows])
    worst = max(distances, key=lambda name: distances[name])
    return distances[worst], worst


def worst_of_ranks(group: Group, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of the rank on which each was worst."""
    everyone = group.all_gather_json([plain(outcome) for outcome in outcomes])
    return [
        max((Outcome(**{**outcome, "error": float(outcome["error"])}) for outcome in of_ranks), key=_badness)
        for of_ranks in zip(*everyone)
    ]


def judge(
    pair: Pair,
    case: str,
    dtype: str,
    group: Group,
    *,
    attempt: Callable[[], Observed],
    reference: Callable[[], Observed],
) -> Outcome:
    """Return how far an attempt of all ranks is from the reference; a refusal is an outcome too."""
    outcome = Outcome(str(pair), case, group.size, error=0.0, bound=BOUNDS[dtype])
    try:
        expected, observed = reference(), attempt()
    except WorkerLost:
        raise
    except WeftError as refusal:
        return replace(outcome, refused=str(refusal))
    except Exception as failure:
        raise AssertionError(f"{case}, {group.size} workers: {failure}") from failure
    error, worst = farthest(observed, expected)
    return replace(outcome, error=error, worst=worst)


def _prove(group: Group, case: Case) -> Outcome:
    def attempt() -> Observed:
        task, graph = _prepared(case.model, case.graph, case.dtype, case.task)
        local = _held(group, case, graph)
        strategy = make_strategy(case.pair, local, group, task=task)
        return observe(strategy, _model(local, case.model, case.dtype, task))

    reference = partial(_reference, case.model, case.graph, case.dtype, case.task)
    outcome = judge(case.pair, str(case), case.dtype, group, attempt=attempt, reference=reference)
    if not outcome.refused or case.expects(outcome.refused):
        return outcome
    return replace(outcome, refused="", error=torch.inf, worst=f"refused ({outcome.refused}), which")


def make_strategy(
    pair: Pair, local: LocalGraph, group: Group, *, seed: int = SEED, task: Task | None = None
) -> Strategy:
    """Return the strategy of a pair on what a rank holds."""
    kind = cast(Callable[..., Strategy], strategies[pair.strategy])
    return kind(local, seed=seed, group=group, task=task, **pair.options)


def _prepared(model: str, graph: str, dtype: str, task: str) -> tuple[Task, Graph]:
    """Return a task and its graph as the model reads it."""
    made, shown = make_task(task, make_graph(graph))
    return made, adapt(shown, MODELS[model][0]).to(dtype=TYPES[dtype])


@cache
def _reference(model: str, graph: str, dtype: str, task: str) -> Observed:
    made, whole = _prepared(model, graph, dtype, task)
    return observe(Single(whole, seed=SEED, task=made), _model(whole, model, dtype, made))


def _held(group: Group, case: Case, graph: Graph) -> LocalGraph:
    """Return what a rank holds of a graph, cut as the strategy needs it."""
    kind = strategies[case.pair.strategy]
    parts = num_parts(case.graph, group.size)
    if kind.cuts == "edges":
        cut = Assignment(edge_parts(case.graph, graph, parts), parts, cuts="edges")
    else:
        cut = Assignment(node_parts(case.graph, parts), parts)
    cut = kind.arranged(cut, case.pair.options, group.size)
    shards = make_shards(graph, cut)
    own = [shards[part] for part, rank in enumerate(spread(cut.num_parts, group.size)) if rank == group.rank]
    return LocalGraph(Shard.merge(own))


def _model(graph: Graph | LocalGraph, name: str, dtype: str, task: Task) -> nn.Module:
    """Return the model with the same first weights everywhere."""
    layer, options = MODELS[name]
    model = build_model(graph, layer, {"hidden": 8, "layers": 2, **options}, task=task, seed=1)
    return ready(model, device=torch.device("cpu"), dtype=TYPES[dtype])


def _gradients(model: nn.Module) -> list[tuple[str, Tensor]]:
    # No gradient is not a gradient of zeros: Adam leaves such a weight alone.
    absent = torch.tensor(torch.inf)
    return [(n, absent if p.grad is None else p.grad.clone()) for n, p in model.named_parameters()]


def _far(observed: Tensor | None, reference: Tensor) -> float:
    """Return max |Δ| over max(1, max |reference|); what is absent on both sides, or undefined, is equal."""
    if observed is None or observed.shape != reference.shape:
        return float("inf")
    mine, theirs = (values.double().nan_to_num(nan=-1e6, posinf=1e6) for values in (observed, reference))
    if not mine.numel():
        return 0.0
    return float((mine - theirs).abs().max() / theirs.abs().max().clamp(min=1.0))


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON can hold it."""
    return {**asdict(outcome), "error": repr(outcome.error)}  # JSON has no infinity


def _badness(outcome: Outcome) -> tuple[bool, float]:
    return not outcome.holds, outcome.error
