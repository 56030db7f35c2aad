"""The same proof on the user's graph and model: the steps of one process are kept in files for the ranks."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from weft.comm.group import Group
from weft.config import Recipe
from weft.errors import RecipeError
from weft.events import dumps
from weft.graph.graph import Graph
from weft.strategies.base import strategies
from weft.strategies.local import LocalGraph
from weft.strategies.single import Single
from weft.tasks.base import Task
from weft.train.model import adapt, build_model, ready
from weft.train.proof.cases import TYPES, Pair, legal_pairs
from weft.train.proof.proving import (
    RATE,
    Observed,
    Outcome,
    judge,
    make_strategy,
    observe,
    worst_of_ranks,
)
from weft.train.resolve import Resolved, resolve
from weft.train.workers.run_parts import prepare_parts, read_parts, read_task_files

_STEP = "outputs of step "


class OwnRecipe:
    """A recipe that is to be proved: its data and its model, on every strategy or on the one it names."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        alone = replace(recipe, strategy={})
        self.resolved = resolve(alone)
        if self.resolved.settings.device not in ("auto", "cpu"):
            raise RecipeError("train.device: the proof runs on the CPU; use 'cpu'")

    def pairs(self, workers: int) -> list[Pair]:
        """Return the pairs to prove."""
        name = self.recipe.strategy.get("name")
        if name is not None:
            return legal_pairs(workers, names=[str(name)])
        over = {kind.over for kind in self.resolved.task.kinds}
        return [pair for pair in legal_pairs(workers) if over <= {*strategies[pair.strategy].over}]

    def prepare(self, counts: list[int]) -> None:
        """Take the steps of one process, and cut the graph for every number of workers."""
        opened = self.resolved.open()
        task = self.resolved.make_task(opened)
        graph = adapt(task.prepared(opened), self.resolved.model, self.resolved.options, task)
        del opened
        for dtype in TYPES:
            whole = graph.to(dtype=TYPES[dtype])
            strategy = Single(whole, seed=self.resolved.settings.seed, task=task)
            self._keep(dtype, observe(strategy, self._model(whole, dtype, task), rate=self._rate))
        del graph
        for workers in counts:
            for pair in self.pairs(workers):
                prepare_parts(self._resolved(pair, workers), self._parts(pair, workers), workers=workers)

    def prove(self, group: Group, told: Callable[[int, Any], None] | None = None) -> list[Outcome]:
        """Compare every pair with the steps of one process; the outcomes are the same on every rank."""
        outcomes = []
        for number, (pair, dtype) in enumerate(self.cases(group.size)):
            if told is not None:
                told(number, f"{pair}, {dtype}")
            outcomes.append(self._prove(group, pair, dtype))
            group.drain()
        return worst_of_ranks(group, outcomes)

    def cases(self, workers: int) -> list[tuple[Pair, str]]:
        """Return the pairs, each in both types."""
        return [(pair, dtype) for pair in self.pairs(workers) for dtype in TYPES]

    # Underneath

    def _prove(self, group: Group, pair: Pair, dtype: str) -> Outcome:
        folder = self._parts(pair, group.size) / "partition"

        def attempt() -> Observed:
            local, _ = read_parts(folder, rank=group.rank, workers=group.size, dtype=TYPES[dtype])
            task = self.resolved.make_task(local)
            read_task_files(task, folder)
            strategy = make_strategy(pair, local, group, seed=self.resolved.settings.seed, task=task)
            return observe(strategy, self._model(local, dtype, task), rate=self._rate)

        reference = partial(self._reference, dtype)
        return judge(pair, f"{pair}: {dtype}", dtype, group, attempt=attempt, reference=reference)

    @property
    def _rate(self) -> float:
        return self.resolved.settings.lr if "lr" in self.recipe.train else RATE

    def _model(self, graph: Graph | LocalGraph, dtype: str, task: Task) -> nn.Module:
        resolved = self.resolved
        assert isinstance(resolved.model, str), "a recipe names its model"
        model = build_model(graph, resolved.model, resolved.options, task=task, seed=resolved.settings.seed)
        return ready(model, device=torch.device("cpu"), dtype=TYPES[dtype])

    def _resolved(self, pair: Pair, workers: int) -> Resolved:
        kept = {name: self.recipe.strategy[name] for name in ("partitioner", "parts") if self._takes(name)}
        options = {"name": pair.strategy, **kept, **pair.options}
        return resolve(replace(self.recipe, strategy=options), workers=workers)

    def _takes(self, name: str) -> bool:
        return name in self.recipe.strategy

    def _parts(self, pair: Pair, workers: int) -> Path:
        """Return the folder of a partition; pairs that need the same one share it."""
        kind = strategies[pair.strategy]
        layout = {"cuts": kind.cuts, "by": kind.partitioner, **kind.arrangement(pair.options, workers)}
        key = sha256(dumps(layout).encode()).hexdigest()[:12]
        return self.folder / f"{workers}-{key}"

    def _keep(self, dtype: str, reference: Observed) -> None:
        steps = {f"{_STEP}{number:03d}": outputs for number, outputs in enumerate(reference.outputs)}
        values = {name: value.contiguous() for name, value in {**reference.values, **steps}.items()}
        save_file({**values, "ids": reference.ids.contiguous()}, self.folder / f"{dtype}.safetensors")

    def _reference(self, dtype: str) -> Observed:
        kept = load_file(self.folder / f"{dtype}.safetensors")
        outputs = [kept.pop(name) for name in sorted(kept) if name.startswith(_STEP)]
        return Observed(outputs=outputs, ids=kept.pop("ids"), values=kept)
