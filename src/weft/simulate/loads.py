"""The configurations of a recipe with what was counted of each, and the laws of the cuts that they use."""

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from weft.config import Recipe
from weft.errors import WeftError
from weft.graph.parts.partition import read_partition
from weft.plan.candidates import Candidate, RuledOut, candidates
from weft.plan.planning import Sources, rehearsed
from weft.simulate.counted import CountedRun, counted
from weft.simulate.scaling_law import ScalingLaw, measured_law
from weft.simulate.workload import Workload
from weft.strategies.base import strategies
from weft.train.workers.run_parts import check_partitioner

Tell = Callable[[str], None]


@dataclass(frozen=True)
class CountedLoad:
    """One configuration, with what is known of its work and traffic."""

    candidate: Candidate
    work: Workload

    @property
    def exact(self) -> bool:
        """Whether it computes what one process does."""
        return self.candidate.cost.is_exact(self.candidate.section)

    @property
    def name(self) -> str:
        """The strategy and its exchange."""
        by = self.candidate.exchange
        return self.candidate.strategy + (f", {by}" if by else "")

    def known_on(self, workers: int, scale: float) -> bool:
        """Return whether it can be told of so many workers on a graph of so many times the size."""
        work = self.work
        if workers in work.runs and scale == 1.0:
            return True
        return work.law is not None and max(work.runs) > 1 and (workers > 1 or 1 in work.runs)


class CountedLoads:
    """Counts configurations, each on a few workers; cuts the graph once for each partitioner."""

    def __init__(self, parts: Sequence[int], tell: Tell) -> None:
        self.parts, self.tell = parts, tell
        self.laws: dict[str, ScalingLaw] = {}
        self.refused: list[RuledOut] = []
        self._runs: dict[str, dict[int, CountedRun]] = {}
        self._first: dict[str, Candidate] = {}

    def count(
        self, recipe: Recipe, workers: Sequence[int], only: Collection[str], exchanges: Collection[str]
    ) -> list[CountedLoad]:
        """Return every configuration of a recipe that these strategies and exchanges have."""
        with TemporaryDirectory(prefix="weft-simulate-") as scratch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sources = Sources(Path(scratch))
            for each in candidates(recipe, tuple(workers), only):
                if isinstance(each, RuledOut):
                    self.refused.append(each)
                elif not exchanges or each.exchange is None or each.exchange in exchanges:
                    self._count(each, sources)
        return [self._load(key) for key in self._runs]

    def _count(self, each: Candidate, sources: Sources) -> None:
        self.tell(f"counting {each.told}")
        kind = strategies[each.strategy]
        try:
            source, ranks = sources.of(each), rehearsed(each, sources)
        except WeftError as error:
            self.refused.append(RuledOut(each.strategy, each.exchange, each.workers, str(error)))
            return
        info = read_partition(source) if each.workers > 1 else None
        key = f"{each.strategy} {each.exchange} {_lasting(each)}"
        self._runs.setdefault(key, {})[each.workers] = counted(each, ranks, info)
        self._first.setdefault(key, each)
        if each.workers > 1 and kind.cuts == "nodes":
            given = check_partitioner(kind, each.resolved.strategy_options)
            if str(given) not in self.laws:
                self.tell(f"cutting by {given['name']} into {', '.join(map(str, self.parts))} parts")
                self.laws[str(given)] = measured_law(sources.whole_of(each.resolved), given, self.parts)

    def _load(self, key: str) -> CountedLoad:
        held, first = self._runs[key], self._first[key]
        kind, law = strategies[first.strategy], None
        if kind.on_workers and kind.cuts == "nodes":
            law = self.laws.get(str(check_partitioner(kind, first.resolved.strategy_options)))
        parts = next(iter(held.values())).parts
        nodes, edges = sum(each.nodes for each in parts), sum(each.edges for each in parts)
        return CountedLoad(first, Workload(held, law, round(nodes), round(edges)))


def _lasting(candidate: Candidate) -> str:
    """Return the options that do not go by the number of workers, in words."""
    told = {name: value for name, value in candidate.section.items() if name not in ("name", "exchange")}
    return str(
        {name: value / candidate.workers if name == "parts" else value for name, value in told.items()}
    )
