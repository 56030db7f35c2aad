"""What is to be proved: every legal pair at its exact point, each model, graph and task, two types."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import combinations, product
from typing import Any

import torch

from weft.errors import RecipeError
from weft.exchanges.base import exchanges
from weft.strategies.base import Strategy, strategies
from weft.train.proof.graphs import GRAPHS
from weft.train.proof.tasks import USUAL, taken_by

# The name of the layer and its options; dropout is on, as `Stack` has it.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn": ("gcn", {}),
    "sage mean": ("sage", {"norm": "batch"}),
    "sage max": ("sage", {"aggregate": "max", "layers": 3}),
    "gat": ("gat", {"heads": 2, "attention_dropout": 0.3}),
    "gatv2": ("gatv2", {"heads": 2, "attention_dropout": 0.3}),
    "gin": ("gin", {"input_dropout": 0.2, "jumping": "cat"}),
    "rgcn": ("rgcn", {}),
    "hgt": ("hgt", {"heads": 2}),
    "edgeconv": ("edgeconv", {}),
    "gine": ("gine", {}),
    "monet": ("monet", {"residual": True}),
    "sgc": ("sgc", {}),
    "appnp": ("appnp", {}),
}
TYPES = {"float32": torch.float32, "float64": torch.float64}
BOUNDS = {"float32": 1e-5, "float64": 1e-10}


@dataclass(frozen=True)
class Refusal:
    """Cases that are refused rather than proved: a model that cannot be on a graph, or not by a strategy."""

    says: str
    """Words of the message."""
    strategies: tuple[str, ...] = ()
    """Those that refuse; none: all of them, one process too."""
    models: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "no edge_attr",
        models=("gine",),
        graphs=("disconnected", "sparse", "relations", "typed"),
    ),
    Refusal(
        "'batch' is over the rows of all intervals",
        strategies=("asynchronous",),
        models=("sage mean",),
    ),
    Refusal(
        "'staged' gives layers sums and means",
        strategies=("staged",),
        models=("sage max", "gat", "gatv2", "rgcn", "hgt", "edgeconv", "gine", "monet"),
    ),
)


@dataclass(frozen=True)
class Pair:
    """A strategy and the options, an exchange among them, at which it must do as one process does."""

    strategy: str
    options: Mapping[str, Any] = field(hash=False)

    def __str__(self) -> str:
        options = {**self.options}
        exchange = dict(options.pop("exchange", {"name": "exact"}))
        words = [self.strategy, _plain(options), str(exchange.pop("name")), _plain(exchange)]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Case:
    """One comparison with `single`."""

    pair: Pair
    model: str
    graph: str
    dtype: str
    task: str = USUAL

    def __str__(self) -> str:
        return f"{self.pair}: {self.model}, {self.graph} graph, {self.task}, {self.dtype}"

    def expects(self, refusal: str) -> bool:
        """Return whether such a case is to be refused, with these words."""
        return any(
            row.says in refusal
            and (not row.strategies or self.pair.strategy in row.strategies)
            and (not row.models or self.model in row.models)
            and (not row.graphs or self.graph in row.graphs)
            for row in REFUSALS
        )


def legal_pairs(workers: int, *, names: Sequence[str] | None = None) -> list[Pair]:
    """Return every pair that so many workers can run, of all strategies or of those named."""
    pairs = []
    for name in strategies.names() if names is None else names:
        kind = strategies[name]
        if not kind.on_workers:
            continue
        for layout in kind.layouts(workers):
            options = [{**layout, **exchange} for exchange in _exact_points(kind)]
            pairs += [Pair(name, each) for each in options if _legal(kind, each, workers)]
    return pairs


def all_cases(pairs: Sequence[Pair]) -> list[Case]:
    """Return every case of some pairs."""
    return [
        Case(*each)
        for pair in pairs
        for each in product([pair], MODELS, GRAPHS, TYPES, taken_by(pair.strategy))
    ]


def cover(pairs: Sequence[Pair]) -> list[Case]:
    """Return few cases in which any two choices meet: a pair and a model, a model and a graph…"""
    chosen: list[Case] = []
    met: set[tuple[Any, Any]] = set()
    for pair, model in product(pairs, MODELS):
        remaining = product(GRAPHS, TYPES, taken_by(pair.strategy))
        best = max((Case(pair, model, *rest) for rest in remaining), key=lambda case: len(_meets(case) - met))
        chosen.append(best)
        met |= _meets(best)
    for case in all_cases(pairs):  # with few pairs, models and graphs have not all met
        if _meets(case) - met:
            chosen.append(case)
            met |= _meets(case)
    return chosen


def _meets(case: Case) -> set[tuple[Any, Any]]:
    """Return the choices that meet in a case, two at a time."""
    choices = {"pair": str(case.pair), "model": case.model, "graph": case.graph, "type": case.dtype}
    return set(combinations([*choices.items(), ("task", case.task)], 2))


def _exact_points(kind: type[Strategy]) -> Iterator[dict[str, Any]]:
    """Give the option `exchange` of each exchange that a strategy allows, at each of its exact points."""
    if "exchange" not in signature(kind).parameters:
        yield {}
        return
    for name in kind.exchanges:
        if name not in exchanges:
            continue
        exchange = exchanges[name]
        if exchange.exact_at is None:  # such an exchange is never exact
            continue
        for point in (exchange.exact_at, *exchange.also_exact_at):
            yield {"exchange": {"name": name, **point}}


def _legal(kind: type[Strategy], options: Mapping[str, Any], workers: int) -> bool:
    try:
        kind.check(options)
        kind.arrangement(options, workers)
    except RecipeError:
        return False
    return True


def _plain(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())
