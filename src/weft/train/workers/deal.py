"""Going on with another number of workers: what each of them kept is dealt out anew, by what it belongs to.

Weights, optimiser and clock are the run's. Of what a strategy keeps beside them (`Strategy.state`) a tensor
with one row per node goes where the node's part goes, sums add up, and what is the run's, the same on all
workers, stays. All else belongs to the halo or to the links of the workers that there were, and is refused
by name.
"""

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError, RecipeError
from weft.reading.damage import reading
from weft.strategies.base import Strategy, strategies
from weft.train.saved.checkpoint import Checkpoint, Checkpoints, Tensors

_NODES = "@nodes"


def packed(strategy: Strategy) -> Tensors:
    """Return what one worker keeps, with the nodes that rows of it belong to."""
    state = strategy.state()
    by_node = any(strategy.state_range(name) is not None for name in state)
    return {**state, _NODES: strategy.state_nodes()} if by_node else state


def unpacked(checkpoints: Checkpoints, saved: Checkpoint, strategy: Strategy, rank: int) -> Tensors:
    """Return what the strategy of one worker continues with, whoever kept it; nothing where nothing was."""
    count = checkpoints.count_ranks(saved)
    if not count:
        return {}
    if count == strategy.workers:
        own = checkpoints.load_rank(saved, rank)
        return {name: value for name, value in own.items() if name != _NODES}
    files = [checkpoints.load_rank(saved, each) for each in range(count)]
    with reading(saved.folder):
        return _dealt_anew(files, saved, strategy, rank)


def _dealt_anew(files: Sequence[Tensors], saved: Checkpoint, strategy: Strategy, rank: int) -> Tensors:
    """Return the share of one worker of what others kept."""
    count = len(files)
    # sorted: a file gives them in no order, and workers should name the same one
    names = sorted(name for name in files[0] if name != _NODES)
    for name in names:
        known = strategy.state_range(name) is not None or name in strategy.state_sums
        if not (known or _alike(files, name, strategy)):
            raise InputError(
                f"{saved.folder}: {name!r} is of the halo or the links of each of {count} workers, which "
                f"{strategy.workers} do not have; continue with --workers {count}, or start anew with "
                "another --out"
            )
    return {name: _dealt(files, name, strategy, rank) for name in names}


def _alike(files: Sequence[Tensors], name: str, strategy: Strategy) -> bool:
    """Return whether a tensor is the run's; rows of halos may be equal by chance, as zeros are."""
    first = files[0][name]
    may_be = first.numel() == 1 or strategy.layout.state_of_run
    return may_be and all(name in file and torch.equal(file[name], first) for file in files)


def _dealt(files: Sequence[Tensors], name: str, strategy: Strategy, rank: int) -> Tensor:
    pieces = [file[name] for file in files]
    nodes = strategy.state_range(name)
    if nodes is not None:
        ids, order = torch.sort(torch.cat([_within(file[_NODES], nodes) for file in files]))
        return torch.cat(pieces)[order[torch.searchsorted(ids, _within(strategy.state_nodes(), nodes))]]
    if name in strategy.state_sums:
        return torch.stack(pieces).sum(0) if rank == 0 else torch.zeros_like(pieces[0])
    return pieces[0]


def _within(ids: Tensor, nodes: range) -> Tensor:
    return ids[(ids >= nodes.start) & (ids < nodes.stop)]


def check_workers(kept: Mapping[str, Any], workers: int, out: str | Path) -> None:
    """Refuse a number of workers that the run of a kept recipe cannot go on with."""
    before = int(kept.get("graph", {}).get("workers", 1))
    if workers == before:
        return
    begun = f"--workers {workers}: {out} was trained with {before}"
    options = dict(kept.get("strategy", {}))
    kind = strategies[options.pop("name", "single")]
    if not kind.on_workers:
        raise RecipeError(f"{begun}, by {kind.name!r}, which is for one process; begin a run by 'halo'")
    if kind.cuts == "grid" or kind.arrangement(options, workers) != kind.arrangement(options, before):
        raise RecipeError(
            f"{begun}, by {kind.name!r}, whose parts are made for them; continue it with --workers {before}"
        )
    parts = kept["graph"].get("parts") or options.get("parts")
    if parts is not None and parts < workers:
        raise RecipeError(
            f"{begun}, on {parts} parts of the graph, and one worker holds a part; continue it with at most "
            f"{parts}, and begin a run that may grow with --parts M"
        )


def with_parts_of(strategy: Mapping[str, Any], kept: Mapping[str, Any], out: str | Path) -> dict[str, Any]:
    """Return the strategy of a run that is continued with the parts it has, on however many workers."""
    parts, name = kept.get("graph", {}).get("parts"), kept.get("strategy", {}).get("name", "single")
    asked = strategy.get("parts")
    if parts is None:
        return dict(strategy)
    if asked not in (None, parts):
        raise RecipeError(f"--parts {asked}: {out} has {parts} parts, and keeps them; leave it out")
    own = {"parts": parts} if "parts" in signature(strategies[name]).parameters else {}
    return {"name": name, **strategy, **own}


def check_elastic(strategy: Mapping[str, Any], train: Mapping[str, Any], parts: int, most: int) -> None:
    """Refuse what workers that come and go cannot do, by the sections of a recipe."""
    kind = strategies[strategy["name"]]
    if not kind.elastic:
        able = ", ".join(name for name in strategies.names() if strategies[name].elastic)
        raise RecipeError(f"--workers: {kind.name!r} keeps its number of workers; those of {able} may change")
    if strategy.get("samplers"):
        raise RecipeError("strategy.samplers: workers that only sample do not come and go; leave it out")
    exchange = strategy.get("exchange")
    if isinstance(exchange, Mapping) and "auto" in exchange.values():
        raise RecipeError(
            "strategy.exchange: 'auto' goes by links that change with the workers; give a number"
        )
    if train.get("device", "auto") not in ("auto", "cpu"):
        raise RecipeError("train.device: workers that come and go train on the CPU; use 'cpu'")
    if parts < most:
        raise RecipeError(
            f"strategy.parts: {parts} parts cannot occupy {most} workers; ask for at least {most}"
        )
