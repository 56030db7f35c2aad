"""From what a recipe asks for to the division of a run: given, even, or planned from measured costs.

A planned division is kept in the run's folder: a run that is continued goes on with its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import nn

from weft.comm.group import Group
from weft.errors import RecipeError
from weft.events import dumps
from weft.format import atomic_write
from weft.layers.stack import Stack
from weft.reading.json_values import WholeNumber, read_json
from weft.strategies.pipeline.division import StageDivision, division_of
from weft.strategies.pipeline.planner import LayerCosts, PlanName, even, hydrozoa, pace, pipedream
from weft.strategies.pipeline.stage_model import check_division, check_staged

FILE = "stages.json"
Stages = int | Sequence[int] | Literal["auto"]


@dataclass
class StagePlan:
    """What was asked for, and what came of it: `settle` a model first."""

    group: Group
    stages: Stages
    replicas: int | Sequence[int] | None
    plan: PlanName | None
    micro_batches: int
    vertical: bool
    folder: Path | None
    measure: Callable[[Stack], LayerCosts] | None = None
    """Measures a model on a micro-batch; called by all workers."""
    told: dict[str, Any] = field(default_factory=dict)
    """What was measured and what is expected of it, where the division was planned."""
    _division: StageDivision | None = None

    @property
    def division(self) -> StageDivision:
        """Who runs what."""
        assert self._division is not None, "a model is settled first"
        return self._division

    def settle(self, model: nn.Module) -> Stack:
        """Divide a model, on first use, and return it; called by all workers."""
        stack = check_staged(model)
        if self._division is None:
            made = self._planned(stack) if self.stages == "auto" else self._given(len(stack.layers))
            check_division(stack, made)
            if self.vertical and not made.uniform:
                raise RecipeError(
                    f"strategy.versions: 'vertical' counts the same updates in all stages, replicas "
                    f"{list(made.replicas)} do not; use 'stash', or as many replicas for each"
                )
            self._division = made
        return stack

    def keep(self) -> None:
        """Leave what was planned in the run's folder, which is there by now."""
        if (
            self.folder is not None
            and self.told
            and self.group.rank == 0
            and not (self.folder / FILE).exists()
        ):
            atomic_write(self.folder / FILE, dumps({**self.division.to_dict(), **self.told}).encode())

    def _given(self, depth: int) -> StageDivision:
        workers, asked = self.group.size, self.stages
        if isinstance(asked, int):
            if asked > depth:
                raise RecipeError(
                    f"strategy.stages: {asked} of a model of {depth} layers; use at most {depth}"
                )
            layers: Sequence[int] = even(depth, asked)
        else:
            assert not isinstance(asked, str), "'auto' is planned"
            layers = asked
        replicas = self.replicas
        if replicas is None:
            replicas = max(workers // len(layers), 1)
        each = [replicas] * len(layers) if isinstance(replicas, int) else list(replicas)
        if len(each) != len(layers):
            raise RecipeError(
                f"strategy.replicas: {each} are {len(each)} numbers, there are {len(layers)} stages; give "
                "one for each, or one for all"
            )
        return division_of(layers, each, depth=depth, workers=workers)

    def _planned(self, model: Stack) -> StageDivision:
        depth, workers = len(model.layers), self.group.size
        found = self.group.all_gather_json(_read(self.folder) if self.group.rank == 0 else None)[0]
        if found is not None and sum(found["replicas"]) == workers and sum(found["layers"]) == depth:
            self.told = {name: found[name] for name in ("measured", "pace") if name in found}
            return StageDivision(tuple(found["layers"]), tuple(found["replicas"]))
        if workers == 1:
            return StageDivision((depth,), (1,))
        assert self.measure is not None, "a strategy gives it"
        costs = self.measure(model)
        if self.plan == "hydrozoa" or self.replicas is not None or self.vertical:
            same = self.replicas if isinstance(self.replicas, int) else None
            made = hydrozoa(costs, workers, micro_batches=self.micro_batches, replicas=same)
        else:
            made = pipedream(costs, workers)
        self.told = {"measured": costs.to_dict(), "pace": pace(costs, made)}
        return made


def _read(folder: Path | None) -> Any:
    if folder is None or not (folder / FILE).is_file():
        return None
    return read_json(folder / FILE, {"layers": [WholeNumber(1)], "replicas": [WholeNumber(1)]})
