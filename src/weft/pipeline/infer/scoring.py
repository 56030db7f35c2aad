"""The model of a run's folder, rebuilt for a graph from its recipe and weights where both fit."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft.code import is_code, refuse_within
from weft.config import EVERY_DATA
from weft.datasets import open_dataset
from weft.datasets.prepare import NO_SPLIT
from weft.errors import DataNote, FormatError, InputError
from weft.events import Event, read_events
from weft.format import read_directory
from weft.graph.graph import Graph
from weft.layers.no_layers import EMBEDDINGS, NoLayers
from weft.meaning import read_report
from weft.pipeline.infer.rows_by_id import learned_tables, rows_by_id
from weft.stores.open import by_rows, with_file
from weft.strategies.base import strategies
from weft.tasks.base import Task
from weft.tasks.choose import AUTO, TaskChoice, suggested_by
from weft.train.model import adapt, build_model, check_options
from weft.train.saved.checkpoint import checksum_of, load_weights
from weft.train.saved.run_folder import read_run

WEIGHTS = "model.safetensors"
# What is done to a graph when it is opened that concerns training alone.
_SPLIT = ("train_fraction", "val_fraction", "split_seed")


@dataclass(frozen=True, eq=False)
class Scoring:
    """A model and a graph that it fits."""

    model: nn.Module
    graph: Graph
    """As the model reads it, with self loops where its layers have them."""
    task: Task
    """What was learned, which says what a prediction holds."""
    data: Graph
    """The graph with all its edges, also those that are no messages."""
    names: list[str] | None = None
    """What the outputs stand for; None: their numbers."""
    mark: str = ""
    """What an interrupted inference is recognised by."""
    edge_features: Mapping[str, list[str]] = field(default_factory=dict)
    """The columns of tables that edge data `attr` was made of, by relation."""


def open_run(run: str | Path, graph: str | Path | None = None, *, all_edges: bool = False) -> Scoring:
    """Return the model of a run and the graph to run it on: that of the run, or another that fits.

    What the recipe did to its data when it was opened (both directions, features normalised …) is done to
    this graph, too. Of a task of pairs the messages are those of training; with `all_edges` every edge.
    """
    folder, kept = Path(run), read_run(run)
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise InputError(f"{folder} has no weights yet ({WEIGHTS}): the run is {kept.get('status')!r}")
    recipe = kept["recipe"]
    _refuse_code_within(folder, recipe)
    trained = _trained_on(folder)
    data = _data(folder, recipe["data"], graph, trained)
    if graph is not None:
        _check_columns(folder, recipe["graph"], graph)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NO_SPLIT, DataNote)  # nobody trains on it here
        opened = open_dataset(**data)
    task = _task(folder, kept, trained, opened, all_edges)
    built = _Built(folder, recipe, task)
    dtype = torch.float64 if recipe["train"]["precision"] == "float64" else torch.float32
    held = built.adapted(task.shown(opened, all_edges=all_edges))
    if graph is None:  # the file of a store has the rows of the run's own graph
        held = with_file(held, recipe["strategy"].get("store"), dtype)
    _check_fit(folder, trained, held)
    held = by_rows(held, None, dtype, opened=True).to(dtype=dtype)
    model = built.model(held).to(dtype)
    try:
        rows = rows_by_id(model, None if graph is None else _own_graph(folder, recipe, model), held)
        load_weights(weights, model, rows=rows)
    except InputError as error:
        raise InputError(f"the graph does not fit the model of {folder}: {error}") from None
    if isinstance(model, NoLayers):
        _hold_rows(folder, model, held, own=graph is None)
    names = task.output_names(recipe["graph"], held.target_type)
    told = {"model": recipe["model"], "task": recipe.get("task"), "all_edges": all_edges}
    columns = recipe["graph"].get("edge_features", {})
    return Scoring(model, held, task, opened, names, _mark(weights, data, told), columns)


def _hold_rows(folder: Path, model: NoLayers, graph: Graph, *, own: bool) -> None:
    """Have a model without layers read the rows that its run left, from a mapped file."""
    if not own:
        raise InputError(f"{folder} learned a row for each node of its own graph; leave out --graph")
    rows = torch.from_numpy(read_directory(folder / EMBEDDINGS, verify=False)[0]["rows"])
    if len(rows) != graph.num_nodes:
        raise InputError(f"{folder} has rows of {len(rows):,} nodes, the graph has {graph.num_nodes:,}")
    model.hold(rows, graph.node_offsets)


def _own_graph(folder: Path, recipe: Mapping[str, Any], model: nn.Module) -> Graph | None:
    """Return the graph of a run, for the ids of its nodes; None where the model has no row of any."""
    if next(learned_tables(model), None) is None:
        return None
    if not recipe["data"]:
        raise InputError(
            f"it learned one row per node, {folder} was made in Python, and nothing tells its nodes' ids"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)
        return open_dataset(**recipe["data"])


def _task(folder: Path, kept: Mapping[str, Any], trained: Event, graph: Graph, all_edges: bool) -> Task:
    """Return the task of a run: what its recipe names, or what "auto" came to in training."""
    recipe = kept["recipe"]
    section = dict(recipe.get("task") or {})
    if section.get("name", AUTO) == AUTO:
        section["name"] = (kept.get("summary") or {}).get("task") or suggested_by(trained, graph)
    task = TaskChoice.of(section).make(graph)
    if all_edges and task.over == "nodes":
        raise InputError(
            f"--all-edges: {folder} learned {task.name}, for which all edges are messages; leave it out"
        )
    task.hides(strategies[recipe["strategy"]["name"]].hides_batches)
    return task


class _Built:
    """Builds the model of a run, with the head of its task, for graphs of the run's kind."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], task: Task) -> None:
        self.name, self.options = _model(folder, recipe["model"])
        self.trained, self.task = recipe["graph"], task

    def model(self, graph: Graph) -> nn.Module:
        """Return it, with first weights."""
        return build_model(graph, self.name, self.options, task=self.task, trained=self.trained)

    def adapted(self, graph: Graph) -> Graph:
        """Return a graph as the model reads it; a class of the user's own tells once it is built."""
        return adapt(graph, self.model(graph) if is_code(self.name) else self.name)


def _data(
    folder: Path, data: Mapping[str, Any], graph: str | Path | None, trained: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of `open_dataset`: the run's own, with the path of another graph."""
    if graph is None:
        if not data:
            raise InputError(f"{folder} was made in Python and names no data; give the graph: --graph GRAPH")
        return dict(data)
    # Options of another format mean nothing here; those of every data set do.
    kept = {key: value for key, value in data.items() if key in EVERY_DATA and key not in _SPLIT}
    if kept.get("symmetrise", "auto") == "auto" and "both_ways" in trained:
        kept["symmetrise"] = trained["both_ways"]  # as in training, whatever this graph alone would suggest
    return {"path": str(graph), **kept}


def _model(folder: Path, described: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the layer and the options of the stack that a run trained."""
    options = dict(described)
    made = options.pop("class", "Stack")
    if is_code(made):
        return _own(folder, made, options)
    name = options.pop("name", None) or options.pop("layer", None)
    if made != "Stack" or name is None:
        raise InputError(
            f"{folder} trained {made}, a model of its own that its recipe cannot rebuild; in Python: "
            f"weft.infer(model, graph), after weft.train.load_weights({str(folder / WEIGHTS)!r}, model)"
        )
    return name, check_options(name, options)


def _refuse_code_within(folder: Path, recipe: Mapping[str, Any]) -> None:
    """Refuse code beside the run that its recipe names, as a store or a task of the user's own may be."""
    for section in ("data", "task", "strategy"):
        options = recipe.get(section) or {}
        entries = [value.get("name") if isinstance(value, Mapping) else value for value in options.values()]
        for name in filter(is_code, entries):
            refuse_within(name, folder)


def _own(folder: Path, name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the class of the user's own that a run trained, found where the user's Python finds it."""
    refuse_within(name, folder)
    try:
        return name, check_options(name, options)
    except InputError as error:
        raise InputError(
            f"{folder} trained {name}, which cannot be made again: {error}; in Python: weft.infer(model, "
            f"graph), after weft.train.load_weights({str(folder / WEIGHTS)!r}, model)"
        ) from None


def _trained_on(folder: Path) -> Event:
    """Return the summary of the graph that a run was trained on; empty where its events are gone."""
    try:
        events = read_events(folder)
    except FormatError:
        return {}
    return next((event for event in events if event["event"] == "graph"), {})


def _check_fit(folder: Path, trained: Event, graph: Graph) -> None:
    """Refuse a graph whose types, relations, features or edge data are not those of training, by name."""
    widths = {kind: data["x"].shape[1] for kind, data in graph.node_data.items() if "x" in data}
    edges = {name: list(value.shape[1:]) for name, value in graph.edge_data.items()}
    features = trained.get("features")
    held = {
        "node types": (trained.get("node_types"), graph.node_types),
        "relations": (trained.get("edge_types"), ["/".join(kind) for kind in graph.edge_types]),
        "features": (features and {kind: one["columns"] for kind, one in features.items()}, widths),
        "edge data": (trained.get("edge_data"), edges),
    }
    for what, (before, now) in held.items():
        before = list(before) if isinstance(now, list) and before is not None else before
        if before is not None and before != now:
            raise InputError(
                f"the graph does not fit the model of {folder}: it was trained on {what} {_shown(before)}, "
                f"this graph has {_shown(now)}"
            )


def mark_of(model: nn.Module, graph: Graph) -> str:
    """Return what tells a model, its weights and the counts of a graph from others."""
    told = [repr(model), graph.num_nodes, graph.num_edges, graph.node_offsets, graph.edge_types]
    held = checksum_of({**model.state_dict(), "indptr": graph.indptr})
    return hashlib.sha256(json.dumps([*told, held], default=str).encode()).hexdigest()


def _check_columns(folder: Path, kept: Mapping[str, Any], path: str | Path) -> None:
    """Refuse a graph from tables whose features have other names, or another order, than in training."""
    before, now = kept.get("features"), read_report(path).get("features")
    for kind, names in (before or {}).items():
        if now and now.get(kind, names) != names:
            raise InputError(
                f"the graph does not fit the model of {folder}: it was trained on the features {_few(names)} "
                f"of {kind!r}, this graph has {_few(now[kind])}"
            )


def _few(names: list[str]) -> str:
    return ", ".join(map(str, names[:8])) + (" …" if len(names) > 8 else "")


def _mark(weights: Path, data: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    path = Path(str(data.get("path", "")))
    manifest = path / "manifest.json" if path.is_dir() else path
    stamp = hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.is_file() else ""
    told = {"weights": hashlib.sha256(weights.read_bytes()).hexdigest(), "data": data, **made}
    return hashlib.sha256(json.dumps({**told, "graph": stamp}, default=str).encode()).hexdigest()


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items()) or "none"
    return ", ".join(map(str, value)) or "none"
