"""The picture of a message: its operators as boxes in a lane for each place they run, values as lines.

Drawn like the other pictures: shapes are SVG, colours are the style sheet's, text given is plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_LANE, _BOX, _ROW, _HIGH = 172.0, 150.0, 58.0, 36.0
_TOP = 26.0

LANES = ("shared", "source", "edge", "destination")
_NAMES = {"shared": "once", "source": "sources", "edge": "edges", "destination": "destinations"}
_TONES = {"shared": "t6", "source": "t1", "edge": "t2", "destination": "t3"}


@dataclass(frozen=True)
class Box:
    """An operator: where it runs, two lines on it, the boxes before it, and the kernels that it is in."""

    lane: str
    name: str
    size: str
    inputs: Sequence[int]
    kernels: Sequence[int] = ()


Place = tuple[float, float]


def flow(boxes: Sequence[Box], *, label: str) -> str:
    """Return an SVG of the boxes from top to bottom."""
    used = [lane for lane in LANES if any(box.lane == lane for box in boxes)]
    rows = _rows(boxes)
    left = {lane: index * _LANE + (_LANE - _BOX) / 2 for index, lane in enumerate(used)}
    places = [(left[box.lane], _TOP + rows[index] * _ROW) for index, box in enumerate(boxes)]
    wide, high = _LANE * len(used), _TOP + (max(rows, default=0) + 1) * _ROW
    shapes = [_head(index, lane) for index, lane in enumerate(used)]
    shapes += [_outline(number, found) for number, found in _kernels(boxes, places).items()]
    shapes += [_line(places[each], places[index]) for index, box in enumerate(boxes) for each in box.inputs]
    shapes += [_box(box, place) for box, place in zip(boxes, places)]
    extent = f'viewBox="0 0 {wide:.0f} {high:.0f}" style="max-width:{wide:.0f}px"'
    return f'<svg class="flow" {extent} role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'


def _rows(boxes: Sequence[Box]) -> list[int]:
    """Return the row of each box: below those it takes from, and alone there in its lane."""
    found: list[int] = []
    taken: set[tuple[str, int]] = set()
    for box in boxes:
        row = max((found[each] + 1 for each in box.inputs), default=0)
        while (box.lane, row) in taken:
            row += 1
        taken.add((box.lane, row))
        found.append(row)
    return found


def _kernels(boxes: Sequence[Box], places: Sequence[Place]) -> Mapping[int, list[Place]]:
    found: dict[int, list[Place]] = {}
    for box, place in zip(boxes, places):
        for kernel in box.kernels:
            found.setdefault(kernel, []).append(place)
    return found


def _head(index: int, lane: str) -> str:
    x = (index + 0.5) * _LANE
    return f'<text class="head" x="{x:.0f}" y="12">{escape(_NAMES[lane])}</text>'


def _outline(number: int, places: Sequence[Place]) -> str:
    x, y = min(place[0] for place in places) - 8, min(place[1] for place in places) - 15
    right, low = max(place[0] for place in places) + _BOX + 8, max(place[1] for place in places) + _HIGH + 6
    box = f'x="{x:.0f}" y="{y:.0f}" width="{right - x:.0f}" height="{low - y:.0f}" rx="10"'
    text = f'<text class="kernel" x="{x + 8:.0f}" y="{y + 11:.0f}">kernel {number + 1}</text>'
    return f'<rect class="kernel" {box}/>{text}'


def _line(start: Place, end: Place) -> str:
    x, y = start[0] + _BOX / 2, start[1] + _HIGH
    to_x, to_y = end[0] + _BOX / 2, end[1]
    bend = max(10.0, (to_y - y) / 2)
    curve = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
    return f'<path class="value" d="{curve}"/>'


def _box(box: Box, place: Place) -> str:
    x, y = place
    middle = x + _BOX / 2
    return (
        f'<rect class="box {_TONES[box.lane]}" x="{x:.0f}" y="{y:.0f}" width="{_BOX:.0f}" '
        f'height="{_HIGH:.0f}" rx="6"/><text class="name" x="{middle:.0f}" y="{y + 15:.0f}">'
        f'{escape(box.name)}</text><text x="{middle:.0f}" y="{y + 29:.0f}">{escape(box.size)}</text>'
    )
