"""Where true pairs of each relation stood among all nodes, by the end that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.report import words
from weft.report.markup import Section, fold, panel, panels, small, table
from weft.report.read import Run

_SHOWN = 12
"""Relations that are shown at once, those of most pairs; the others open on request."""
_COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10", "raw_mrr")
_ENDS = {"src": "head asked for", "dst": "tail asked for"}


def relations(run: Run) -> Section | None:
    """Filtered ranks by end and by relation, raw ones beside."""
    told = run.table("summary", "details", "test") or run.table("summary", "details", "val")
    by_relation, by_end = told.get("by_relation"), told.get("by_end")
    if not isinstance(by_relation, Mapping) or not isinstance(by_end, Mapping):
        return None
    rows = sorted(by_relation.items(), key=lambda item: -(words.number(item[1].get("pairs")) or 0.0))
    ends = [[name, *_numbers(by_end.get(end, {}))] for end, name in _ENDS.items()]
    split = "test" if run.table("summary", "details", "test") else "validation"
    lead = f"Filtered ranks of {split} pairs among all nodes; raw ranks leave other true answers in."
    shown = _table(rows[:_SHOWN]) + (fold("All relations", _table(rows)) if len(rows) > _SHOWN else "")
    note = small("MRR by end: that of pairs whose tail, or whose head, was asked for.")
    head = ["", *map(words.label, _COLUMNS), "pairs"]
    body = panels(panel("By end", table(head, ends)), panel("By relation", shown + note, wide=True))
    return Section("Relations", body, lead=lead)


def _table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    head = ["relation", *map(words.label, _COLUMNS), "tail MRR", "head MRR", "pairs"]
    return table(head, ([name, *_numbers(held, ("dst", "src"))] for name, held in rows))


def _numbers(held: Mapping[str, Any], ends: Sequence[str] = ()) -> list[str]:
    """The columns of a row; what is missing is told as missing."""
    nested = [held.get(end) for end in ends]
    values = [held.get(name) for name in _COLUMNS]
    values += [each.get("mrr") if isinstance(each, Mapping) else None for each in nested]
    shown = [words.decimal(words.number(value)) for value in values]
    return [*shown, words.count(words.number(held.get("pairs")))]
