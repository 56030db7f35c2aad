"""Pictures of several workers: who sends how much to whom, and who does what when.

Drawn like the charts of `plots`: shapes are SVG, colours are the style sheet's, text given is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from weft.report.plots import FULL, Axis, figure, linear_axis
from weft.report.words import time_unit

_SIDE = 416.0  # about the width at which the map is shown, so that letters have their usual size
_EDGE = 34.0
_LETTERS = 12.0
_WRITTEN = 6  # more cells in a row have no room for their values

Bar = tuple[int, str, float, float]
"""Row, tone, start and length in seconds."""


def heat_map(
    values: Sequence[Sequence[float]],
    *,
    names: Sequence[str],
    show: Callable[[float], str],
    tell: Callable[[int, int], str],
    label: str,
    rows: str,
    columns: str,
) -> str:
    """Return an SVG with a cell a pair; `show` writes a value, `tell` says of (row, column) what it means."""
    size = len(values)
    side = (_SIDE - _EDGE) / size
    most = max((value for row in values for value in row), default=0.0)
    shapes = []
    for row, held in enumerate(values):
        for column, value in enumerate(held):
            # By root: a few heavy pairs must not hide the rest.
            shade = 0.04 + 0.96 * ((value / most) ** 0.5 if most else 0.0)
            place = f'x="{_EDGE + side * column:.1f}" y="{_EDGE + side * row:.1f}"'
            extent = f'width="{0.97 * side:.1f}" height="{0.97 * side:.1f}" rx="{min(4.0, side / 8):.1f}"'
            style = f"fill:var(--t1);fill-opacity:{shade:.3f}"
            shapes.append(
                f'<rect {place} {extent} style="{style}"><title>{escape(tell(row, column))}</title>'
            )
            shapes.append("</rect>")
            if value and size <= _WRITTEN:
                tone = "on" if shade > 0.55 else "off"
                shapes.append(_text(row, column, side, show(value), tone))
    stride = -(-size // 16)
    for index in range(0, size, stride):
        at = _EDGE + side * (index + 0.49)
        shapes.append(f'<text x="{at:.1f}" y="{_EDGE - 9:.0f}">{escape(names[index])}</text>')
        shapes.append(f'<text x="{_EDGE - 14:.0f}" y="{at + 4:.1f}">{escape(names[index])}</text>')
    shapes.append(f'<text class="head" x="{_EDGE + (_SIDE - _EDGE) / 2:.0f}" y="9">{escape(columns)}</text>')
    middle = _EDGE + (_SIDE - _EDGE) / 2
    turned = f'transform="rotate(-90 8 {middle:.0f})"'
    shapes.append(f'<text class="head" x="8" y="{middle:.0f}" {turned}>{escape(rows)}</text>')
    box = f'viewBox="0 0 {_SIDE:.0f} {_SIDE:.0f}" font-size="{_LETTERS:.0f}"'
    return f'<svg class="map" {box} role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'


def timeline(
    bars: Sequence[Bar], *, names: Sequence[str], ends: Sequence[float], title: str, text: str
) -> str:
    """Return one line per row with its bars in order, later ones on top; `ends` are drawn across all rows."""
    length = max(ends)
    unit, unit_name = time_unit(length)
    ticks = [(value * unit, label) for value, label in linear_axis(0.0, length / unit, unit_name).ticks]
    x = Axis(0.0, length, tuple(tick for tick in ticks if tick[0] <= length * 1.0001), unit_name)
    rows = len(names)
    y = Axis(0.0, float(rows), tuple((rows - row - 0.5, name) for row, name in enumerate(names)))
    drawn: dict[str, list[str]] = {}
    for row, tone, start, seconds in bars:
        left, right = FULL * x.at(start), FULL * x.at(start + seconds)
        top, bottom = FULL * (row + 0.14) / rows, FULL * (row + 0.86) / rows
        drawn.setdefault(tone, []).append(f"M{left:.2f} {bottom:.1f}V{top:.1f}H{right:.2f}V{bottom:.1f}Z")
    shapes = "".join(f'<path class="fill {tone}" d="{"".join(paths)}"/>' for tone, paths in drawn.items())
    marks = "".join(f'<path class="mark" d="M{FULL * x.at(end):.2f} 0V1000"/>' for end in ends[:-1])
    height = min(26.0, max(6.0, 2.6 * rows))
    chart = figure(shapes + marks, title=title, text=text, x=x, y=y)
    return f'<div class="lanes" style="--height:{height:.1f}rem">{chart}</div>'


def _text(row: int, column: int, side: float, text: str, tone: str) -> str:
    x, y = _EDGE + side * (column + 0.485), _EDGE + side * (row + 0.485) + 4
    return f'<text class="{tone}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
