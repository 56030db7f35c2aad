"""A plan: every configuration of a recipe rehearsed, those that fit compared, and one recommended."""

import tempfile
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from weft.config import Recipe
from weft.errors import WeftError
from weft.graph.graph import Graph
from weft.plan.candidates import Candidate, RuledOut, candidates
from weft.plan.cluster import Cluster
from weft.plan.dealing import Dealing
from weft.plan.forecast import Forecast, forecast
from weft.plan.machine import Machine
from weft.plan.rehearse.rehearsal import RankRehearsal, rehearse
from weft.plan.wires import Wires, wires_of
from weft.strategies.base import strategies
from weft.train.model import adapt
from weft.train.resolve import Resolved, resolve
from weft.train.workers.run_parts import check_partitioner, prepare_parts, whole_in_parts

WORKERS = (1, 2, 4)
"""The numbers of workers that are compared where nothing is said."""


@dataclass(frozen=True)
class Plan:
    """Configurations of a recipe, the recommended one first, and what is out of the question."""

    graph: dict[str, Any]
    configurations: list[Forecast]
    refused: list[RuledOut]
    machine: Machine
    dealing: Dealing | None = None
    """The links of a cluster under what is recommended, and who should hold what."""

    def ordered(self) -> "Plan":
        """Return it with those that fit first, exact ones first among these, the fastest first."""

        def rank(each: Forecast) -> tuple[bool, bool, float]:
            return not each.fits, not each.exact, each.epoch_seconds

        return replace(self, configurations=sorted(self.configurations, key=rank))

    @property
    def recommended(self) -> Forecast | None:
        """The fastest one that fits and is exact; the fastest that fits, where none is exact."""
        fitting = [each for each in self.configurations if each.fits]
        return min(fitting, key=lambda each: (not each.exact, each.epoch_seconds), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        chosen, prices = self.recommended, self.machine.prices
        return {
            "graph": self.graph,
            "recommended": None if chosen is None else chosen.to_dict(),
            "configurations": [each.to_dict() for each in self.configurations],
            "prices": None if prices is None else {"date": prices.date, "sha256": prices.sha256},
            "refused": [vars(each) for each in self.refused],
            "deal": None if self.dealing is None else self.dealing.to_dict(),
        }


@dataclass
class Sources:
    """The graph as each configuration is trained on, read and cut once for all that share it."""

    folder: Path
    whole: dict[str, Graph] = field(default_factory=dict)

    def of(self, candidate: Candidate) -> Any:
        """Return the folder of the parts that workers read, or the graph as one process takes it."""
        resolved = candidate.resolved
        kind = strategies[candidate.strategy]
        if candidate.workers > 1:
            return self._parts(candidate)
        graph = self.whole_of(resolved)
        if kind.on_workers and not kind.takes_whole:
            return whole_in_parts(graph, kind, resolved.strategy_options)
        return graph

    def whole_of(self, resolved: Resolved) -> Graph:
        """Return the graph as a run in one process is trained on it."""
        key = str(sorted(resolved.task.to_dict().items())) + str(strategies[resolved.strategy].hides_batches)
        if key not in self.whole:
            graph = resolved.open()
            task = resolved.make_task(graph)
            self.whole[key] = adapt(task.prepared(graph), resolved.model, resolved.options, task)
        return self.whole[key]

    def _parts(self, candidate: Candidate) -> Path:
        kind, options = strategies[candidate.strategy], candidate.resolved.strategy_options
        told = [
            kind.cuts,
            kind.num_parts(options, candidate.workers),
            check_partitioner(kind, options),
            kind.arrangement(options, candidate.workers),
            kind.hides_batches,
        ]
        name = sha256(repr(told).encode()).hexdigest()[:16]
        return prepare_parts(candidate.resolved, self.folder / name, workers=candidate.workers)


def make_plan(
    recipe: Recipe,
    *,
    machine: Machine,
    cluster: Cluster | None = None,
    workers: Sequence[int] = WORKERS,
    memory: int | None = None,
    only: Collection[str] = (),
    epochs: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Return the plan of a recipe on this machine, or on those of a cluster.

    `epochs` are rehearsed, and never fewer than are needed.
    """
    models = {count: machine if cluster is None else cluster.machine(machine, count) for count in workers}
    found: list[Forecast] = []
    refused: list[RuledOut] = []
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="weft-plan-") as scratch:
        sources = Sources(Path(scratch))
        for each in candidates(recipe, workers, only):
            if isinstance(each, RuledOut):
                refused.append(each)
                continue
            tell(each.told)
            try:
                ranks = rehearsed(each, sources, epochs)
            except Exception as error:  # one that cannot be rehearsed leaves the others
                refused.append(RuledOut(each.strategy, each.exchange, each.workers, _reason(error)))
                continue
            facts = facts or {"num_nodes": ranks[0].num_nodes, "num_edges": ranks[0].num_edges}
            wires = wires_of(cluster, machine, each.workers, kinds=each.kinds)
            found.append(forecast(each, ranks, models[each.workers], wires, memory))
    return Plan(facts, found, refused, machine).ordered()


def _reason(error: Exception) -> str:
    """Return one line: a refusal in its own words, anything else with its kind."""
    if isinstance(error, WeftError):
        return str(error)
    return f"cannot be rehearsed: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def rehearsed(candidate: Candidate, sources: Sources, epochs: int | None = None) -> list[RankRehearsal]:
    """Return what the ranks of a configuration do."""
    count = max(candidate.cost.rehearsed(candidate.section), epochs or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = sources.of(candidate)
        return rehearse(candidate.resolved, source, workers=candidate.workers, epochs=count)


def plan_one(
    recipe: Recipe,
    workers: int,
    machine: Machine,
    folder: Path,
    *,
    epochs: int | None = None,
    wires: Callable[[Sequence[str]], Wires] | None = None,
) -> tuple[Forecast, list[RankRehearsal]]:
    """Return what a recipe costs as it stands, and what its ranks do; parts are written into the folder.

    `wires` gives the links among the workers for the kinds of their calls; by default they meet in the memory
    of this machine.
    """
    resolved = resolve(recipe, workers=workers)
    section = {**recipe.strategy, "name": resolved.strategy}
    one = Candidate(resolved.strategy, workers, section, resolved)
    ranks = rehearsed(one, Sources(folder), epochs)
    links = wires_of(None, machine, workers, kinds=one.kinds) if wires is None else wires(one.kinds)
    return forecast(one, ranks, machine, links), ranks
