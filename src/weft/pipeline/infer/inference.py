"""GraphInfer: a trained model over a whole graph, each layer once a node, outputs by the user's ids.

The model is cut into a slice a layer and one for the output. A round runs a slice on every node that is
needed and keeps the rows; the next round reads them. So nothing is computed twice, however many nodes share a
neighbourhood. An inference that was killed goes on after the last round that it kept.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from weft import format
from weft.errors import FormatError, InputError
from weft.pipeline.engines.base import Engine, check_on_cluster, engines, memory_limit, open_engine
from weft.pipeline.infer.links import Links
from weft.pipeline.infer.requests import read_nodes
from weft.pipeline.infer.rounds import Rounds, worth_keeping
from weft.pipeline.infer.scoring import Scoring, mark_of, open_run
from weft.pipeline.infer.write import NOTE, OLD_NOTE, PREDICTIONS, Scored, Writer, write_note
from weft.placing import work_folder
from weft.registry import suggest
from weft.stores.base import Store
from weft.stores.memory import MemoryStore
from weft.stores.mmap import MmapStore
from weft.strategies.call import evaluating
from weft.strategies.hops import checked_hops
from weft.tasks.choose import usual_task
from weft.train.inference.infer import RowPlaces, by_layer, needed_nodes, room_for, some_rows
from weft.train.inference.predictions import ByNode
from weft.train.inference.runs import Draw, Runner, from_samples, placed
from weft.train.inference.stages import Chain, chain_of
from weft.train.settings import choose_device

TORCH = "torch"
"""What runs the rounds in this process, without tables."""
_MARK = "made_of.json"


class RoundProgress(Protocol):
    """Is told how far a round is: its number from 0, how many there are, rows done and rows in all."""

    def __call__(self, round: int, rounds: int, rows: int, num_rows: int) -> None: ...


@dataclass(frozen=True)
class Setting:
    """How an inference is run."""

    engine: str = "torch"
    memory: str | int | None = None
    """Of the engine; with torch of a piece, and of rows between rounds before they lie in files."""
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's master and settings."""
    fanout: tuple[int, ...] | None = None
    """Edges drawn a node in each hop, -1: all; None: every layer over all edges, once a node."""
    seed: int = 0
    """Of these draws."""
    device: str = "cpu"
    """Where torch runs the model."""


def infer_run(
    run: str | Path,
    out: str | Path,
    *,
    graph: str | Path | None = None,
    nodes: str | Path | None = None,
    links: Links = Links(),  # noqa: B008 - it is frozen
    all_edges: bool = False,
    setting: Setting = Setting(),  # noqa: B008 - it is frozen
    overwrite: bool = False,
    tell: RoundProgress | None = None,
) -> dict[str, Any]:
    """Write what the model of a run gives for the nodes or pairs of a graph, and return what was done.

    `graph` is a path that `weft train` could read (that of the run), `nodes` a file of ids (the target type).
    Where pairs were learned, messages are those of training; with `all_edges` every edge is one.
    """
    _check_setting(setting)
    links.check(nodes)
    _check_out(Path(out), overwrite)
    began = time.perf_counter()
    scoring = open_run(run, graph, all_edges=all_edges)
    read = time.perf_counter() - began
    result = infer_model(
        scoring, out, nodes=nodes, links=links, setting=setting, overwrite=overwrite, tell=tell
    )
    result["seconds"]["read"] = read
    result["messages"] = "training" if scoring.task.over == "pairs" and not all_edges else "all"
    return result


def infer_model(
    scoring: Scoring,
    out: str | Path,
    *,
    nodes: str | Path | Tensor | None = None,
    links: Links = Links(),  # noqa: B008 - it is frozen
    setting: Setting = Setting(),  # noqa: B008 - it is frozen
    overwrite: bool = False,
    tell: RoundProgress | None = None,
) -> dict[str, Any]:
    """Write what a model gives for nodes or pairs of a graph into a new folder; return what was done."""
    out = format.as_path(out)
    _check_setting(setting)
    links.check(nodes)
    graph, told = scoring.graph, tell or _silent
    asked = links.asked(scoring)
    wanted = _wanted(scoring, nodes) if asked is None else asked.nodes
    chain = _chain(scoring, setting)
    rounds = len(chain.stages) if chain is not None and setting.fanout is None else 0
    counts = {"evaluations": 0}
    seconds = {"rounds": 0.0, "write": 0.0}
    began = time.perf_counter()
    with (
        evaluating(scoring.model),
        torch.no_grad(),
        placed(scoring.model, setting.device) as device,
        format.new_directory(out, overwrite, marker=(NOTE, OLD_NOTE)) as partial,
        _kept_rounds(out, scoring, wanted, setting) as work,
        _opened(setting, work) as engine,
    ):
        if setting.fanout is not None or chain is None:
            pieces = _from_samples(scoring, chain, wanted, setting, device, counts)
        else:
            counts["evaluations"] = _count_evaluations(graph, chain, wanted)
            if engine is None or not wanted.numel():  # of no node, empty files
                pieces = _pieces(chain, Runner(graph, device), wanted, work, setting, told)
            else:
                pieces = Rounds(engine, graph, chain, wanted, work).run(told)
        seconds["rounds"] = time.perf_counter() - began
        if asked is None:
            writer = Writer(partial, graph, scoring.task, scoring.names)
            writer.write(pieces, lambda rows: told(rounds, rounds, rows, wanted.numel()))
            if nodes is None:
                writer.write_learned(scoring.model)
        else:
            rows = _collected(pieces, wanted, graph.num_nodes, KeptPlaces(work, _room(setting, device)))
            scoring.model.to("cpu")  # where the rows of nodes are
            counts |= asked.write(partial, rows, setting.memory)
        seconds["write"] = time.perf_counter() - began - seconds["rounds"]
        files = sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*.parquet"))
        counts = {"nodes": wanted.numel(), "layers": len(setting.fanout or ()) or rounds, **counts}
        result = {"out": str(out), **_shown(setting, device), **counts, "files": files, "seconds": seconds}
        write_note(partial, result)
    return result


def _count_evaluations(graph: Any, chain: Chain, wanted: Tensor) -> int:
    """Return how many rows all stages together compute for these nodes."""
    needed = needed_nodes(graph, wanted, [stage.hops for stage in chain.stages])
    return sum(len(each) for each in needed)


def _shown(setting: Setting, device: torch.device) -> dict[str, Any]:
    """Return how it was run, for the note beside the results."""
    fanout = None if setting.fanout is None else list(setting.fanout)
    return {"engine": setting.engine, "device": str(device), "fanout": fanout}


def _chain(scoring: Scoring, setting: Setting) -> Chain | None:
    """Return the stages of the model; None where it has none that can be run apart, nor needs to have."""
    try:
        return chain_of(scoring.model, scoring.graph)
    except InputError:
        if setting.fanout is None:
            raise
        return None


def _wanted(scoring: Scoring, nodes: str | Path | Tensor | None) -> Tensor:
    """Return the nodes asked for; where pairs were learned all of them, unless some are named."""
    if isinstance(nodes, Tensor):
        return nodes
    if nodes is None and scoring.task.over == "pairs":
        return torch.arange(scoring.graph.num_nodes)
    return read_nodes(scoring.graph, nodes)


def _collected(pieces: Iterator[Scored], wanted: Tensor, num_nodes: int, places: RowPlaces) -> ByNode:
    """Return the rows of all nodes asked for, which come in their order."""
    places.drop("rows")
    store, done = None, 0
    for piece in pieces:
        if store is None:
            store = places.new("rows", (wanted.numel(), piece.output.shape[1]), piece.output.dtype)
        store.write(torch.arange(done, done + len(piece.nodes)), piece.output)
        done += len(piece.nodes)
    assert store is not None, "there is always one piece"
    return ByNode(store, wanted, num_nodes)


def _room(setting: Setting, device: torch.device) -> int:
    return room_for(device) if setting.memory is None else memory_limit(setting.memory)


def _from_samples(
    scoring: Scoring,
    chain: Chain | None,
    wanted: Tensor,
    setting: Setting,
    device: torch.device,
    counts: dict[str, int],
) -> Iterator[Scored]:
    """Give the outputs and embeddings of nodes from sampled neighbourhoods, nodes type by type."""
    graph = scoring.graph
    checked_hops(scoring.model, setting.fanout, "fanout")
    if len(graph.node_types) > 1:
        wanted = wanted.sort().values
    draw = Draw(list(setting.fanout or ()), seed=setting.seed)
    for found in from_samples(scoring.model, chain, graph, wanted, draw, device):
        counts["evaluations"] += found.evaluations
        yield Scored(found.nodes.numpy(), found.output, found.embedding)


def _opened(setting: Setting, work: Path) -> AbstractContextManager[Engine | None]:
    """Return the engine that is asked for, closed in the end; None where rounds are run in torch."""
    if setting.engine == TORCH:
        return nullcontext()
    return open_engine(
        setting.engine, work, memory=setting.memory, master=setting.master, settings=setting.settings
    )


def _pieces(
    chain: Chain, runner: Runner, wanted: Tensor, work: Path, setting: Setting, told: RoundProgress
) -> Iterator[Scored]:
    """Run all rounds in torch, and return what gives the outputs some nodes at a time."""
    memory = _room(setting, runner.device)
    places = KeptPlaces(work, memory)
    held = by_layer(chain, runner, wanted, places=places, report=told, memory=memory, keep=2)
    return _scored(chain, wanted, held, memory, runner.device)


def _scored(
    chain: Chain, wanted: Tensor, held: list[Store], memory: int, device: torch.device
) -> Iterator[Scored]:
    for nodes, rows in some_rows(wanted, held, memory, device):
        embedding = None if chain.embed is None else chain.embed(rows).cpu()
        yield Scored(nodes.numpy(), chain.finish(rows).cpu(), embedding)


class KeptPlaces(RowPlaces):
    """Rows in memory as long as there is room, and in files where there is not or where a round was long.

    What lies in files is found again by an inference that continues this one.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder, self.memory = folder, memory

    def new(self, name: str, shape: Any, dtype: torch.dtype) -> Store:
        if torch.Size(shape).numel() * dtype.itemsize * 3 <= self.memory:  # two are read, one is written
            return super().new(name, shape, dtype)
        return MmapStore.create(self.folder / name, shape, dtype=dtype)

    def held(self, name: str) -> Store | None:
        """Return rows that an earlier attempt finished; what it had only begun is removed."""
        if not (self.folder / name).is_dir():
            return None
        try:
            return MmapStore(self.folder / name)
        except FormatError:
            self.drop(name)
            return None

    def done(self, name: str, store: Store, seconds: float) -> Store:
        """Keep the rows where doing them again would take longer than writing them."""
        if isinstance(store, MemoryStore) and worth_keeping(seconds):
            MmapStore.write_rows(self.folder / name, store.values)
        store.close()
        return store

    def drop(self, name: str) -> None:
        """Remove rows that no further layer reads."""
        shutil.rmtree(self.folder / name, ignore_errors=True)


class _kept_rounds:
    """Rows of finished rounds beside the output: there until it is, unless something was wrong with it."""

    def __init__(self, out: Path, scoring: Scoring, wanted: Tensor, setting: Setting) -> None:
        self.path = out.parent / f".{out.name}.work"
        asked = hashlib.sha256(wanted.numpy().tobytes()).hexdigest()
        told = {"of": scoring.mark, "nodes": asked, "engine": setting.engine, "fanout": setting.fanout}
        self.mark = json.dumps(told)

    def __enter__(self) -> Path:
        work_folder(self.path)
        lock = self.path.with_name(f"{self.path.name}.lock")
        self._lock = open(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise FormatError(f"another weft infer is writing to {self.path.name[1:-5]}") from None
        known = self.path / _MARK
        if not (known.is_file() and known.read_text() == self.mark):
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(parents=True)
            format.atomic_write(known, self.mark.encode())
        return self.path

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            shutil.rmtree(self.path, ignore_errors=True)
        self.path.with_name(f"{self.path.name}.lock").unlink(missing_ok=True)
        self._lock.close()


def _check_setting(setting: Setting) -> None:
    known = [TORCH, *engines.names()]
    if setting.engine not in known:
        hint = suggest(setting.engine, known)
        raise InputError(f"no engine {setting.engine!r}; {hint}known: {', '.join(known)}")
    if setting.master or setting.settings:
        check_on_cluster(setting.engine)
    memory_limit(setting.memory)
    if setting.engine != TORCH and (setting.fanout is not None or setting.device != "cpu"):
        raise InputError(f"--fanout and --device are for --engine torch; the engine is {setting.engine}")
    if setting.fanout is None and setting.seed:
        raise InputError("--seed is that of sampled neighbours: give --fanout, too, or leave it out")
    if setting.fanout is not None and setting.memory is not None:
        raise InputError("--memory bounds the rounds over all edges; leave it out with --fanout")
    choose_device(setting.device)


def _check_out(out: Path, overwrite: bool) -> None:
    """Refuse an output that is in the way, before time is spent."""
    if out.exists() and not overwrite:
        raise FormatError(f"{out} already exists; choose another folder for --out, or pass --overwrite")


def _silent(round: int, rounds: int, rows: int, num_rows: int) -> None: ...


def model_scoring(model: nn.Module, graph: Any, *, names: list[str] | None = None) -> Scoring:
    """Return a model that is there, of our layers or `weft.nn.PyG`, to be given to `infer_model`.

    An interrupted inference is continued by one of the same weights on a graph of the same degrees.
    """
    from weft.train.model import adapt

    whole, graph = graph, adapt(graph, model)
    return Scoring(model, graph, usual_task(graph), whole, names, mark_of(model, graph))


__all__ = ["PREDICTIONS", "Links", "Setting", "infer_model", "infer_run", "model_scoring"]
