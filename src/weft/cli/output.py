"""What people see, all of it on standard error: progress while training, a short table at the end."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from weft.events import Event, Sink
from weft.sizes import shown
from weft.train.saved.summary import Summary

# A log of a long run stays readable: about this many lines, whatever the number of epochs.
LINES = 50


@contextmanager
def watching() -> Iterator[Sink]:
    """Give a sink that shows a run's progress: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    with ProgressBar() as bar:
        yield bar


class Lines:
    """Progress as lines, for logs: one an epoch, or one every few when there are many."""

    def __init__(self) -> None:
        self.graph: Event = {}
        self.epochs = 0

    def __call__(self, event: Event) -> None:
        kind = event["event"]
        if kind == "graph":
            self.graph = event
        elif kind == "start":
            self.epochs = event["epochs"]
            _say(describe_start(self.graph, event))
        elif kind == "resume":
            self.epochs = event["epochs"]
            _say(f"continuing after epoch {event['epoch']}")
        elif kind in NOTES:
            _say(NOTES[kind](event))
        elif kind == "epoch" and self._due(event["epoch"]):
            _say(f"epoch {event['epoch']:>5}  {describe_epoch(event)}")

    def _due(self, epoch: int) -> bool:
        every = max(1, -(-self.epochs // LINES))
        return epoch % every == 0 or epoch in (1, self.epochs)


class ProgressBar:
    """Progress as a bar with loss, validation score and epoch time."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
            console=self.console,
            refresh_per_second=5,
        )
        self.task = self.progress.add_task("", total=None, told="", visible=False)
        self.graph: Event = {}

    def __enter__(self) -> "ProgressBar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        kind = event["event"]
        if kind == "graph":
            self.graph = event
        elif kind == "start":
            self.console.print(describe_start(self.graph, event), highlight=False)
            self.progress.update(self.task, total=event["epochs"], visible=True)
        elif kind == "resume":
            self.console.print(f"continuing after epoch {event['epoch']}", highlight=False)
            self.progress.update(self.task, total=event["epochs"], completed=event["epoch"], visible=True)
        elif kind in NOTES:
            self.console.print(NOTES[kind](event), highlight=False)
        elif kind == "epoch":
            self.progress.update(self.task, completed=event["epoch"], told=describe_epoch(event))


def describe_start(graph: Event, start: Event) -> str:
    """Return a line on what is trained, and why so."""
    task = f"{start['task']}: " if "task" in start else ""
    counts = f"{graph.get('num_nodes', 0):,} nodes, {graph.get('num_edges', 0):,} edges"
    how = f"{start['strategy']}, {start['device']}: {start['why']}"
    return f"{task}{counts}; {start['parameters']:,} parameters; {how}"


def describe_compiled(event: Event) -> str:
    """Return a line on what compiling the model's messages cost, which later epochs do not pay.

    >>> describe_compiled({"messages": 2, "kernels": 0, "seconds": 0.0312})
    'compiled 2 messages in 31.2 ms'
    """
    counts = [(event["messages"], "message"), (event["kernels"], "kernel")]
    told = " and ".join(f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count)
    return f"compiled {told} in {format_seconds(event['seconds'])}"


def describe_uncaptured(event: Event) -> str:
    """Return a line on why steps on a GPU are launched kernel by kernel, which is slower.

    >>> describe_uncaptured({"reason": "a layer reads the edges by relation"})
    'steps are no CUDA graphs: a layer reads the edges by relation'
    """
    return f"steps are no CUDA graphs: {event['reason']}"


def describe_memory_plan(event: Event) -> str:
    """Return a line on what is done with what each layer keeps for backward.

    >>> layers = [{"choice": "recompute"}, {"choice": "keep"}, {"choice": "recompute"}]
    >>> told = {"memory": 4096, "peak": 3072, "everything": 8192, "seconds": 0.0021}
    >>> describe_memory_plan({**told, "layers": layers})
    'memory: 3 KiB of 4 KiB, 8 KiB if all were kept; recompute layers 1, 3, keep layer 2; 2.1 ms more a step'
    """
    places: dict[str, list[str]] = {}
    for number, layer in enumerate(event["layers"], start=1):
        places.setdefault(layer["choice"], []).append(str(number))
    told = [f"{what} layer{'s' * (len(which) > 1)} {', '.join(which)}" for what, which in places.items()]
    return (
        f"memory: {shown(event['peak'])} of {shown(event['memory'])}, {shown(event['everything'])} if all "
        f"were kept; {', '.join(told)}; {format_seconds(event['seconds'])} more a step"
    )


NOTES = {
    "compiled": describe_compiled,
    "uncaptured": describe_uncaptured,
    "memory_plan": describe_memory_plan,
}
"""Events that are told by one line of their own."""


def describe_epoch(event: Event) -> str:
    """Return the numbers of an epoch, aligned."""
    told = [f"loss {event['loss']:.4f}"]
    metrics = {name: value for name, value in event.get("val", {}).items() if name != "loss"}
    told += [f"val {name} {_number(value)}" for name, value in list(metrics.items())[-1:]]
    told += [f"drift {max(event['drift']):.1e}"] if event.get("drift") else []
    seconds = sum(value for name, value in event["seconds"].items() if name != "evaluate")
    return "  ".join([*told, f"{format_seconds(seconds)}/epoch"])


def show_summary(summary: Summary, page: Path | None) -> None:
    """Show a short table of what a run came to, and where its report lies."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in summary_rows(summary):
        table.add_row(name, value)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(table)
    if summary.workers > 1 and summary.out is not None:
        show_ledger(summary.out)
    if page is not None:
        console.print(f"report         {page}", markup=False)
    if summary.stopped == "interrupted":
        console.print(f"continue with  weft train --out {summary.out} --resume", markup=False)


def show_ledger(run_folder: str) -> None:
    """Show what an epoch of a run with several workers sent, why, and what it waited for; else nothing."""
    from weft.report.read import read_run
    from weft.report.sections.workers import LEDGER_HEAD, ledger_rows

    held = read_run(run_folder).traffic
    if held is None:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(LEDGER_HEAD):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    rows = ledger_rows(held)
    for index, row in enumerate(rows):
        table.add_row(*row, style="bold" if index == len(rows) - 1 else None)
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(table)
    console.print()


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return the rows of the table at the end of a run."""
    rows = [(f"{split} {summary.metric}", _score(summary, split)) for split in ("test", "val")]
    if summary.metric != "accuracy" and summary.test_accuracy is not None:
        rows.append(("test accuracy", _number(summary.test_accuracy)))
    negatives = summary.scores.get("negatives")
    if negatives is not None:
        rows.append(("negatives", f"{negatives:,.4g} a pair"))
    return [
        *rows,
        ("epochs", f"{summary.epochs} ({summary.stopped}; weights of epoch {summary.best_epoch})"),
        ("epoch time", f"{format_seconds(summary.epoch_seconds_median)} (median)"),
        ("total time", format_seconds(summary.seconds)),
        *(_cost_rows(summary.cost) if summary.cost else []),
        ("peak memory", f"{summary.peak_memory_bytes / 2**30:.2f} GiB{_largest(summary)}"),
        ("run folder", str(summary.out)),
    ]


def _cost_rows(cost: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run cost, and by which table of prices."""
    value = "–" if cost["value"] is None else f"{cost['value']:.4g}"
    by = f"{cost['machines']} x {cost['machine']} at {cost['hour']:g} an hour"
    table = f"1 / (time x cost); prices of {cost['date']}, {cost['sha256'][:8]}"
    return [("cost", f"{cost['dollars']:.4g} dollars ({by})"), ("value", f"{value} ({table})")]


def format_seconds(seconds: float) -> str:
    """Return a duration for people: 3.2 ms, 1.4 s, 2 min 05 s."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def show_table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table on standard output: for commands whose result is one."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # Without a terminal rich assumes 80 columns and would cut paths.
    Console(highlight=False, width=None if sys.stdout.isatty() else 160, markup=False).print(table)


def _largest(summary: Summary) -> str:
    return "" if summary.workers == 1 else f" (the largest of {summary.workers} workers)"


def _score(summary: Summary, split: str) -> str:
    return _number(summary.metrics.get(split, {}).get(summary.metric))


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return (
        f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"
    )  # numbers in the user's units may be large


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
