"""The top of the page: what was trained on what, and how well and how fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from pathlib import PurePath
from typing import Any

from weft.report import words
from weft.report.read import Run


def title(run: Run) -> str:
    """The name of the run in words: 'GCN on cora'."""
    model, data = run.table("recipe", "model"), run.table("recipe", "data")
    name = str(model.get("name") or model.get("layer") or model.get("class") or "A model")
    source = str(data.get("name") or PurePath(str(data.get("path") or "")).stem)
    nodes = words.number(run.table("recipe", "graph").get("num_nodes"))
    if not source and nodes:
        source = words.plural(nodes, "node")  # a graph made in Python has no name
    shown = name.upper() if len(name) <= 4 and name.isalpha() and name.islower() else name
    return f"{shown} on {source}" if source else shown


def exchange(run: Run) -> str:
    """The exchange of the run in words: 'sampled, p 0.1'; empty for one process."""
    held = run.table("recipe", "strategy").get("exchange", "exact" if run.traffic is not None else "")
    if not isinstance(held, Mapping):
        return str(held)
    options = [f"{key} {words.toml(value)}" for key, value in held.items() if key != "name"]
    return ", ".join([str(held.get("name", "")), *options])


def headline(run: Run) -> str:
    """The head of the page as HTML: title, tags, the result in large figures, and the rest in tiles."""
    name = words.inline(run.metric)
    test, val = run.score("test"), run.score("val")
    shown, split = (test, "test") if test is not None else (val, "validation")
    if shown is None:
        shown, split = run.score("train"), "training"
    told = run.show(run.metric, shown)
    big, unit = told.removesuffix(" %"), '<span class="unit">%</span>' if told.endswith(" %") else ""
    tiles = "".join(_tile(*tile) for tile in _tiles(run, name, val if split == "test" else None))
    tags = "".join(f"<li>{escape(tag)}</li>" for tag in _tags(run))
    spoken = f"{split.capitalize()} {name}{_remark(run)}"
    return (
        f'<h1>{escape(title(run))}</h1><ul class="tags">{_state(run)}{tags}</ul>'
        f'<div class="hero"><div class="result"><div class="big">{escape(big)}{unit}</div>'
        f'<div class="of">{escape(spoken)}</div></div><dl class="tiles">{tiles}</dl></div>'
    )


def _remark(run: Run) -> str:
    """What the result must be read with."""
    if run.negatives is not None and math.isfinite(run.negatives):
        held = run.negatives
        return f" among {words.count(held) if held == round(held) else words.decimal(held)} negatives a pair"
    return ", lower is better" if run.lower_is_better(run.metric) else ""


def _tiles(run: Run, metric: str, val: float | None) -> list[tuple[str, str, str]]:
    """(name, value, remark) of each tile; one without a value is left out."""
    told = words.number(run.summary.get("epochs"))
    epochs = told if told is not None else float(len(run.epochs))
    best = f"best: {words.count(run.best.number)}" if run.best else ""
    memory = words.number(run.summary.get("peak_memory_bytes"))
    if memory is None:
        memory = max((e.memory_bytes for e in run.epochs if e.memory_bytes is not None), default=None)
    loss = words.number(run.summary.get("loss"))
    if loss is None and run.epochs:
        loss = run.epochs[-1].loss
    tiles = [
        ("Validation", run.show(run.metric, val), metric),
        ("Loss", words.decimal(loss), "training, last epoch"),
        ("Epochs", words.count(epochs), best),
        ("Time", words.seconds(words.number(run.summary.get("seconds")) or _clock(run)), "in all"),
        ("Epoch", words.seconds(run.epoch_seconds), "median"),
        ("Memory", words.size(memory), "peak" if run.workers == 1 else "peak, largest worker"),
    ]
    cost = run.table("summary", "cost")
    if cost:
        by = f"{cost.get('machines')} x {cost.get('machine')}, prices of {cost.get('date')}"
        table = f"1 / (time x cost), table {str(cost.get('sha256'))[:8]}"
        tiles += [
            ("Cost", f"{words.decimal(words.number(cost.get('dollars')))} dollars", by),
            ("Value", words.decimal(words.number(cost.get("value"))), table),
        ]
    if run.traffic is not None:
        total = run.traffic.total
        tiles += [
            ("Workers", words.count(run.workers), exchange(run)),
            ("Sent", words.size(total.bytes_sent), "an epoch, all workers"),
            ("Waiting", words.seconds(total.exposed), "an epoch, mean worker"),
        ]
    return [tile for tile in tiles if tile[1] != words.NOTHING]


def _tile(name: str, value: str, remark: str) -> str:
    figure, _, unit = value.rpartition(" ")
    # "12.3 ms" is a figure and its unit, "3 min 20 s" is better left whole.
    single = figure and " " not in figure
    shown = f'{escape(figure)} <span class="unit">{escape(unit)}</span>' if single else escape(value)
    return f"<div><dt>{escape(name)}</dt><dd>{shown}<small>{escape(remark)}</small></dd></div>"


def _state(run: Run) -> str:
    status = str(run.meta.get("status") or "unknown")
    if status == "done":
        early = run.summary.get("stopped") == "patience"
        return f'<li class="state good">{"done, stopped early" if early else "done"}</li>'
    if status == "running":
        # A run that was killed leaves this word behind, too.
        status = "not finished"
    return f'<li class="state bad">{escape(status)}</li>'


def _tags(run: Run) -> list[str]:
    model, train, start = run.table("recipe", "model"), run.table("recipe", "train"), run.last("start")
    layers, workers = words.number(model.get("layers")), words.number(start.get("workers"))
    parameters = words.number(start.get("parameters"))
    tags = [
        str(run.facts.get("called") or run.task.replace("_", " ")),
        _counted(run.facts.get("tag")),
        words.plural(layers, "layer") if layers else "",
        f"hidden {model['hidden']}" if model.get("hidden") else "",
        words.plural(parameters, "parameter") if parameters else "",
        str(start.get("strategy") or run.table("recipe", "strategy").get("name") or ""),
        words.plural(workers, "worker") if workers and workers > 1 else "",
        str(start.get("device") or ""),
        str(train.get("precision") or ""),
        f"seed {train['seed']}" if "seed" in train else "",
    ]
    return [tag for tag in tags if tag]


def _counted(tag: Any) -> str:
    """A count with its noun, which a file tells as [7, "class", "classes"]."""
    number = words.number(tag[0]) if words.listed(tag, 3) else None
    return words.plural(number, str(tag[1]), str(tag[2])) if number else ""


def _clock(run: Run) -> float | None:
    times = [words.number(event.get("time")) for event in run.events] + [epoch.time for epoch in run.epochs]
    return max((time for time in times if time is not None), default=None)
