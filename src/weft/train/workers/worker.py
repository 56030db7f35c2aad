"""One worker of several: reads its parts, agrees with the others on what is done, and trains."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from weft.code import is_code
from weft.comm.group import Group
from weft.config import Recipe
from weft.errors import FormatError, RecipeError
from weft.exchanges.base import check_exchange, exchanges
from weft.graph.views import recorded_counts
from weft.layers.learned import rows_of
from weft.stores.open import with_file_rows
from weft.strategies.base import strategies
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.sampler_ranks import SamplerRank, check_samplers
from weft.strategies.records.record_graph import RecordGraph
from weft.tasks.base import Task
from weft.train.fit import fit
from weft.train.model import build_model, checked_loops
from weft.train.resolve import Resolved, resolve
from weft.train.saved.claim import claimed
from weft.train.saved.run_folder import RunFolder, versions
from weft.train.saved.summary import Summary
from weft.train.settings import choose_device
from weft.train.trainer import Place
from weft.train.workers.placed import check_placement, dealt, placed
from weft.train.workers.run_parts import (
    SharedWhole,
    check_loops,
    prepare_parts,
    read_parts,
    read_task_files,
    read_whole,
)


@dataclass
class KeptGraph:
    """What a process holds of the graph for all of its members, from one group of workers to the next."""

    parts: dict[int, tuple[LocalGraph | RecordGraph, dict[str, Any]]] = field(default_factory=dict)
    """What each member holds, and what tells partitions apart."""
    whole: SharedWhole = field(default_factory=SharedWhole)
    """All parts together, where a strategy draws from them."""


def prepare(recipe: Recipe, out: Path, *, workers: int) -> None:
    """Check a recipe for several workers and write the parts they will read."""
    prepare_resolved(resolve(recipe, workers=workers), out, workers=workers)


def prepare_resolved(resolved: Resolved, out: Path, *, workers: int) -> Path:
    """Write the parts that several workers will read, and return where they are."""
    _check_device(resolved)
    check_placement(resolved, workers)
    if resolved.records is not None:  # there is no graph to be cut
        return out
    return prepare_parts(resolved, out, workers=trainers_of(resolved, workers))


def device_of(recipe: Recipe, local_rank: int) -> torch.device:
    """Return where a worker of a machine trains: on the CPU, or on the GPUs in turn where they are asked for.

    Workers share a GPU where there are fewer of these.
    """
    return device_by(str(recipe.train.get("device", "auto")), local_rank)


def device_by(name: str, local_rank: int) -> torch.device:
    """Return where a worker trains by the name of the device."""
    if name in ("auto", "cpu"):
        return torch.device("cpu")
    device = choose_device(name)
    if device.index is not None or not torch.cuda.is_available():
        return device
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def _check_device(resolved: Resolved) -> None:
    """Refuse a GPU where several workers cannot use it."""
    name, options = resolved.settings.device, resolved.strategy_options
    if name in ("auto", "cpu"):
        return
    if ":" in name:
        raise RecipeError(
            f"train.device: {name!r} would have all workers share one GPU; 'cuda' gives them GPUs in turn"
        )
    kind, exchange = strategies[resolved.strategy], options.get("exchange") or "exact"
    way = exchanges[check_exchange(exchange)[0]]
    if not all("cuda" in each for each in (kind.worker_devices, way.devices)):
        able = [repr(each) for each in strategies.names() if "cuda" in strategies[each].worker_devices]
        ways = [repr(each) for each in exchanges.names() if "cuda" in exchanges[each].devices]
        raise RecipeError(
            f"train.device: {name!r} with several workers is for strategy {' or '.join(able)} with exchange "
            f"{' or '.join(ways)}; use these, or 'cpu'"
        )


def run_worker(recipe: Recipe, place: Place, group: Group) -> Summary | None:
    """Train as one of the ranks of a group. Only rank 0 writes the run; all return the same summary.

    A rank that only samples for the others returns nothing.
    """
    return train_parts(resolve(recipe, workers=group.size), place, group)


def train_parts(
    resolved: Resolved, place: Place, group: Group, kept: KeptGraph | None = None
) -> Summary | None:
    """Train as `run_worker` does, with a recipe that is checked and a graph that is cut.

    `kept` is what this process holds of the graph from before, and for other members.
    """
    settings = resolved.settings
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    parts = resolved.partition
    if parts is None:
        assert place.out is not None, "workers meet in the folder of the run"
        parts = Path(place.out) / "partition"
    workers, trainers = group.size, trainers_of(resolved, group.size)
    if group.rank >= trainers:
        _sample(resolved, parts, group, trainers, dtype)
        return None
    if trainers < workers:
        group = group.subgroup(range(trainers), purpose="trainers")
    placement = placed(resolved, parts, place, group)
    if strategies[resolved.strategy].draws_from_whole:
        placement["whole"] = partial(read_whole if kept is None else kept.whole.read, parts, dtype)
    kept = KeptGraph() if kept is None else kept
    if group.rank not in kept.parts:
        kept.parts[group.rank] = _held(resolved, parts, group, placement.get("part_rank"), dtype)
    graph, identity = kept.parts[group.rank]
    task = resolved.make_task(graph)
    read_task_files(task, parts)
    model = _model(resolved, parts, graph, group, task)
    recipe = _told(resolved, graph, place, {"workers": workers, **identity})
    # Section by section, so that a disagreement is easy to find.
    group.agree(**{f"[{name}]": section for name, section in recipe.items()}, versions=versions())
    place = replace(place, resume=place.resume or group.attempt > 0)
    kind = partial(
        cast(Any, strategies[resolved.strategy]), group=group, **placement, **resolved.strategy_options
    )
    with claimed(place.out) if group.rank == 0 else nullcontext():
        return fit(
            graph,
            model,
            resolved.options,
            settings=settings,
            kind=kind,
            folder=_open(place, recipe, group),
            place=place,
            task=task,
            own=resolved.own,
        )


def _model(
    resolved: Resolved, parts: Path, graph: LocalGraph | RecordGraph, group: Group, task: Task
) -> nn.Module:
    """Return the model that was given, or a new one of the name in the recipe, the same on every worker."""
    choice = resolved.model
    if not isinstance(choice, str):
        return choice
    with rows_of(_own_rows(resolved, graph, group)):
        model = build_model(graph, choice, resolved.options, task=task, seed=resolved.settings.seed)
    if is_code(choice) and resolved.records is None:
        check_loops(parts, model)
    return model


def _told(
    resolved: Resolved, graph: LocalGraph | RecordGraph, place: Place, identity: dict[str, Any]
) -> dict[str, Any]:
    """Return the recipe as a run tells it, with what is known of the graph and of its workers."""
    elastic = {} if place.handover is None else {"elastic": place.handover.span}
    recipe = resolved.to_dict()
    return {**recipe, "graph": {**recipe["graph"], **recorded_counts(graph), **identity, **elastic}}


def _own_rows(resolved: Resolved, graph: LocalGraph | RecordGraph, group: Group) -> Tensor | None:
    """Return the nodes whose learned rows this worker holds, where each holds some; None: all."""
    apart = strategies[resolved.strategy].rows_by_owner and resolved.settings.precision != "float16"
    return graph.own_ids if apart and group.size > 1 else None


def _held(
    resolved: Resolved, parts: Path, group: Group, part_rank: Sequence[int] | None, dtype: torch.dtype
) -> tuple[LocalGraph | RecordGraph, dict[str, Any]]:
    """Return what this worker holds of the graph, or of the records, and what tells it from others."""
    if resolved.records is not None:
        records = RecordGraph(resolved.records, rank=group.rank, workers=group.size, dtype=dtype)
        return checked_loops(records, resolved.model, resolved.options), {"records": resolved.records.mark}
    graph, identity = read_parts(parts, rank=group.rank, workers=group.size, dtype=dtype, part_rank=part_rank)
    graph = _with_file(graph, resolved.strategy_options.get("store"), dtype)
    if group.device.type == "cuda":
        torch.cuda.set_device(group.device)
        graph = LocalGraph(graph.shard, facts=graph.facts, device=group.device)
    return graph, identity


def _with_file(graph: LocalGraph, store: Any, dtype: torch.dtype) -> LocalGraph:
    """Return what a worker holds with the features of the file that a store reads, where it reads one."""
    shard = with_file_rows(graph.shard, store, dtype)
    if shard is graph.shard:
        return graph
    facts = dict(graph.summary())
    columns_told = dict(facts.get("features", {}))
    for number, kind in enumerate(shard.node_types):
        if shard.node_data[kind] is not graph.shard.node_data[kind]:
            width = shard.node_data[kind]["x"].shape[1]
            rows = shard.node_offsets[number + 1] - shard.node_offsets[number]
            columns_told[kind] = {"columns": width, "sparse": False, "stored_values": width * rows}
            columns_told[kind] |= {"dtype": str(dtype).split(".")[-1]}
    return LocalGraph(shard, facts={**facts, "features": columns_told})


def trainers_of(resolved: Resolved, workers: int) -> int:
    """Return how many of the workers train, the first ones; the others sample for them."""
    samplers: int = resolved.strategy_options.get("samplers", 0)
    return check_samplers(samplers, workers) if samplers else workers


def _sample(resolved: Resolved, parts: Path, group: Group, trainers: int, dtype: torch.dtype) -> None:
    """Make batches of the whole graph for the trainers until they are done."""
    graph, _ = read_parts(parts, rank=0, workers=1, dtype=dtype)
    graph = _with_file(graph, resolved.strategy_options.get("store"), dtype)
    owners = dealt(parts, trainers)
    options, seed = resolved.strategy_options, resolved.settings.seed
    task = resolved.make_task(graph)
    read_task_files(task, parts)
    train = task.targets(graph, lambda own: own)["train"]  # as the trainers count them: all of them are here
    seeds = graph.shard.node_ids[train.places]
    SamplerRank(group, graph.shard, seeds, seed=seed, options=options, part_rank=owners).serve()


def _open(place: Place, recipe: dict[str, object], group: Group) -> RunFolder | None:
    """Return the run's folder; all ranks continue from the checkpoint that rank 0 found."""
    if place.out is None:
        return None
    if place.handover is not None and place.handover.resumed is not None:
        return RunFolder(place.out, recipe=recipe, rank=group.rank, resumed=place.handover.resumed)
    options: dict[str, Any] = {"recipe": recipe, "resume": place.resume, "restarted": group.attempt > 0}
    folder = RunFolder(place.out, **options) if group.rank == 0 else None
    epoch = folder.resumed.epoch if folder is not None and folder.resumed else None
    epoch = group.all_gather_json(epoch)[0]
    if folder is None:
        folder = RunFolder(place.out, **options, rank=group.rank)
        seen = folder.resumed.epoch if folder.resumed else None
        if seen != epoch:
            raise FormatError(
                f"rank {group.rank} finds a checkpoint after epoch {seen} in {place.out}, rank 0 after "
                f"{epoch}; all ranks need the same folder"
            )
    return folder
