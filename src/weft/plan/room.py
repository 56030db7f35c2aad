"""Whether a run will fit into memory, asked before it begins: what will not is refused, with what would.

A step over the whole graph is rehearsed where it could be too large at all, of sampled batches one, with an
evaluation. Only what a run is certain to take counts, so that nothing is refused which fits.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.code import is_code
from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.machine import free_memory
from weft.plan.rehearse.rehearsal import rehearse
from weft.sizes import parse_bytes, shown
from weft.strategies.base import strategies
from weft.strategies.device_bytes import sampled_bytes
from weft.train.model import build_model, option_names
from weft.train.resolve import Resolved
from weft.train.settings import choose_device
from weft.train.workers.run_parts import facts_of

LIMIT = "WEFT_MEMORY_LIMIT"
"""The variable by which a user allows a run more, or less, than the memory that is free."""
_CERTAIN = 0.9
"""Of what a rehearsal counts, what a run is certain to take beside the graph."""
_EMPTY = 150 << 20
"""Bytes that every further process takes at least."""
_SAMPLED, _BATCH = "sampled", 1024
_NARROWER = 6
"""How often a model is made half as wide, in search of one that fits."""
Need = Callable[[Resolved], int]


def check_graph(resolved: Resolved, held: Any) -> None:
    """Refuse a run of this process, which has read its graph, that will not fit beside it."""
    here = choose_device(resolved.settings.device).type == "cpu"
    if not here or not _asked(resolved):
        return
    features = [data["x"] for data in held.node_data.values() if "x" in data]
    if resolved.strategy == _SAMPLED and not all(isinstance(x, Tensor | SparseFeatures) for x in features):
        return  # a store bounds what it takes
    widths = [x.shape[1] for x in features]
    if _most(resolved, held.num_nodes, held.num_edges, max(widths, default=0)) < room():
        return

    def need(changed: Resolved) -> int:
        (told,) = rehearse(changed, _one_step(changed, held), workers=1, epochs=1)
        return int(_CERTAIN * (told.peak - told.held))

    batched = resolved.strategy == _SAMPLED
    others = {} if batched else {"strategy.name = 'sampled'": lambda: _sampled(resolved, held)}
    _check(resolved, need, others)


def check_parts(resolved: Resolved, parts: Path, workers: int) -> None:
    """Refuse a run of workers on this machine, whose parts lie in a folder, that will not fit."""
    if not _asked(resolved):
        return
    told = facts_of(parts) or {}
    widths = [kind["columns"] for kind in told.get("features", {}).values()]
    if _most(resolved, told.get("num_nodes", 0), told.get("num_edges", 0), max(widths, default=0)) < room():
        return

    def need(changed: Resolved) -> int:
        ranks = rehearse(changed, parts, workers=workers, epochs=1)
        return sum(int(_CERTAIN * (rank.peak - rank.held)) + _EMPTY for rank in ranks)

    _check(resolved, need, {})


def room() -> int:
    """Return the bytes that the processes of a run may take together: what is free, or what the user says."""
    told = os.environ.get(LIMIT)
    return free_memory() if told is None else parse_bytes(told, LIMIT)


def _asked(resolved: Resolved) -> bool:
    """Return whether a run on the CPU, of layers that have a name, takes whole or sampled steps in memory."""
    kind, options = strategies[resolved.strategy], resolved.strategy_options
    named = isinstance(resolved.model, str) and not is_code(resolved.model)
    bounded = options.get("activation", "keep") != "keep"
    batched = resolved.strategy == _SAMPLED and not resolved.task.to_dict().get("name", "").startswith("link")
    whole = kind.has_layers and (batched or not kind.in_batches) and not bounded
    return named and whole and resolved.settings.device in ("auto", "cpu")


def _one_step(resolved: Resolved, held: Any) -> Any:
    """Return the graph with as many training nodes as a step of batches has: one step is as large as all."""
    if resolved.strategy != _SAMPLED:
        return held
    (kind,) = held.node_types  # of several types nothing is rehearsed
    size = int(resolved.strategy_options.get("batch_size", _BATCH))
    chosen = torch.zeros(held.num_nodes, dtype=torch.bool)
    chosen[held.node_data[kind]["train_mask"].nonzero().flatten()[:size]] = True
    data = {**held.node_data[kind], "train_mask": chosen}
    return Graph(replace(held.parts(), node_data={kind: data}))


def _most(resolved: Resolved, nodes: int, edges: int, features: int) -> int:
    """Return more bytes than any model of layers takes for a graph: what is below is not rehearsed."""
    options = resolved.options
    heads = int(options.get("heads", 8)) if "heads" in option_names(str(resolved.model)) else 1
    hidden = int(options.get("hidden", 64)) * heads
    width = 2 * features + (int(options.get("layers", 2)) + 2) * hidden
    return 8 * width * (8 * nodes + 2 * edges)


def _check(resolved: Resolved, need: Need, others: Mapping[str, Callable[[], int]]) -> None:
    free = room()
    try:
        taken = need(resolved)
    except Exception:  # what cannot be rehearsed is not judged: the run will tell
        return
    if taken <= free:
        return
    fitting = [f"{words} ({shown(size)})" for words, size in _nearest(resolved, need, others) if size <= free]
    remedy = f"what fits: {'; '.join(fitting)}" if fitting else "use a narrower model or another machine"
    raise RecipeError(
        f"strategy.name: {resolved.strategy!r} will take at least {shown(taken)} beside the graph, "
        f"{shown(free)} may be taken; {remedy}; to try all the same set {LIMIT}={2 * taken >> 20}MiB"
    )


def _nearest(
    resolved: Resolved, need: Need, others: Mapping[str, Callable[[], int]]
) -> Iterator[tuple[str, int]]:
    """Give settings near those of the run, with the bytes that they take."""
    free = room()
    if resolved.settings.precision == "float32":
        settings = replace(resolved.settings, precision="bfloat16")
        with suppress(Exception):
            yield "train.precision = 'bfloat16'", need(replace(resolved, settings=settings))
    hidden = int(resolved.options.get("hidden", 64))
    for _ in range(_NARROWER):
        hidden //= 2
        if hidden < 1:
            break
        taken = need(replace(resolved, options={**resolved.options, "hidden": hidden}))
        if taken <= free:
            yield f"model.hidden = {hidden}", taken
            break
    for words, size in others.items():
        with suppress(Exception):
            yield words, size()


def _sampled(resolved: Resolved, held: Any) -> int:
    """Return what sampled training takes beside the graph, by a trial draw; raise where none can be made."""
    assert isinstance(resolved.model, str), "a model of one's own is not asked"
    model: Any = build_model(held, resolved.model, resolved.options, task=resolved.make_task(held))
    return sampled_bytes(held, model)
