"""The page of `weft explain`: each message as it was written and as it was compiled, drawn and in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.description import Kernel, Operator
from weft.compiler.programs.cost import Work
from weft.report.flow import Box, flow
from weft.report.markup import Section, fold, panel, panels, small, table
from weft.report.page import compose
from weft.report.words import count, size
from weft.train.explanation import ExplainedMessage, Explanation, extent, is_view, stored_words, where
from weft.train.travel import Crossed

_HEAD = ("operator", "runs", "does", "rows x width", "read", "written", "operations")


def render_explanation(explanation: Explanation, title: str, version: str) -> str:
    """Return the page as HTML that loads nothing."""
    drawn = [_section(number, each) for number, each in enumerate(explanation.messages, start=1)]
    empty = "" if drawn else small(str(explanation))
    return compose(drawn, title=title, folder="", headline=empty, version=version)


def _section(number: int, message: ExplainedMessage) -> Section:
    title = f"Message {number}: {message.name}"
    lead = f"Reduced by {message.reduce} over {message.edges:,} edges. {message.verdict}"
    found = panels(
        panel("As written", _picture(message.written, written=True)) if message.written else "",
        "" if message.compiled is None else panel("Compiled", _picture(message.compiled.operators)),
    )
    if message.compiled is not None:
        found += panels(panel("Kernels", _kernels(message.compiled.kernels), wide=True))
    if message.crossed:
        found += panels(panel("What crosses the network", _crossed(message.crossed), wide=True))
    found += fold("Operators as written", _table(message.written, written=True)) if message.written else ""
    if message.compiled is not None:
        found += fold("Operators as compiled", _table(message.compiled.operators))
    return Section(title, body=found or small(message.verdict), lead=lead)


def _picture(operators: Sequence[Operator], *, written: bool = False) -> str:
    """Draw all operators but views, whose values are those of what they show."""
    behind: list[list[int]] = []
    boxes: list[Box] = []
    for each in operators:
        taken = list(dict.fromkeys(found for before in each.inputs for found in behind[before]))
        if is_view(each):
            behind.append(taken)
            continue
        behind.append([len(boxes)])
        boxes.append(Box(_lane(each, written=written), each.name, extent(each), taken, each.kernels))
    return flow(boxes, label=f"{len(boxes)} operators, from the inputs down to the result")


def _lane(each: Operator, *, written: bool) -> str:
    if each.kernels:
        return "edge"
    if written and each.where not in ("shared", "reduced"):
        return "edge"
    return {"pair": "edge", "reduced": "destination", "relation": "source"}.get(each.where, each.where)


def _table(operators: Sequence[Operator], *, written: bool = False) -> str:
    rows = []
    for each in operators:
        if each.movement == "input" or is_view(each):
            continue
        fused = ", ".join(f"in kernel {place + 1}" for place in each.kernels)
        numbers = ("", "", "") if fused else _numbers(each.cost)
        rows.append((each.name, fused or where(each, written=written), each.movement, extent(each), *numbers))
    return table(_HEAD, rows, words=4)


def _kernels(kernels: Sequence[Kernel]) -> str:
    rows = []
    for number, each in enumerate(kernels, start=1):
        if each.reason:
            rows.append((f"{number}", f"in plain torch: {each.reason}", *[""] * 8))
            continue
        reads = ", ".join(f"{source} {heads}x{wide}" for source, (heads, wide) in each.reads)
        forward = _numbers(each.forward)
        read, _, operations = ("", "", "") if each.backward is None else _numbers(each.backward)
        stays = (read, operations, size(each.kept), stored_words(each))
        rows.append((f"{number}", each.name, reads, *forward, *stays))
    head = ("", "kernel", "reads of an edge", "read", "written", "operations")
    return table((*head, "backward reads", "operations", "stays for it", "of edges"), rows, words=3)


def _crossed(found: Sequence[Crossed]) -> str:
    head = ("value", "wide", "bytes a row", "rows", "bytes a step", "gradients back")
    rows = [
        (
            each.name,
            "x".join(map(str, each.shape)) or "1",
            count(each.row_bytes),
            count(each.rows),
            "fetched once" if each.once else size(each.step_bytes),
            "yes" if each.gradient else "no",
        )
        for each in found
    ]
    return table(head, rows)


def _numbers(cost: Work) -> tuple[str, str, str]:
    return size(cost.read), size(cost.written), count(cost.operations)
