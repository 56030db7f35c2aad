"""The picture of a simulation: seconds of an epoch against workers, strong, weak, and by links."""

import math
from collections.abc import Callable, Sequence
from html import escape

from weft.simulate.answers import ScalePoint, SimulatedAnswers, lines

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 360, 70, 190, 40, 46
_TONES = ("#1b6ca8", "#d1495b", "#3b8b52", "#e0912f", "#7a5195", "#444444", "#00a6a6", "#a05a2c")


def draw(answers: SimulatedAnswers) -> str:
    """Return an SVG with a panel for each question; bands are the bounds of the cut's growth."""
    panels = [("the graph at hand", answers.strong), ("a graph that grows with the workers", answers.weak)]
    panels += [(f"the graph at hand, links of {speed}", held) for speed, held in answers.links.items()]
    held = [(title, points) for title, points in panels if points]
    drawn = [
        f'<g transform="translate(0 {place * _HEIGHT})">{_panel(title, points)}</g>'
        for place, (title, points) in enumerate(held)
    ]
    height = _HEIGHT * max(1, len(held))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{height}" fill="white"/>', *drawn, "</svg>\n"])


def _panel(title: str, points: Sequence[ScalePoint]) -> str:
    low, high = min(each.low for each in points), max(each.high for each in points)
    across = _axis([each.workers for each in points], _LEFT, _WIDTH - _RIGHT)
    up = _axis([max(low, 1e-9), max(high, 1e-9)], _HEIGHT - _BOTTOM, _TOP)
    marks = [
        _text(_LEFT, _TOP - 16, f"seconds of an epoch, {title}", 13),
        _text(_LEFT, _HEIGHT - 10, "workers"),
        *[
            _text(across(each), _HEIGHT - _BOTTOM + 16, f"{each:,}")
            for each in _few([point.workers for point in points])
        ],
        *[_text(6, up(each) + 4, f"{each:.3g} s") for each in {low, high}],
    ]
    for number, (name, line) in enumerate(lines(points).items()):
        tone = _TONES[number % len(_TONES)]
        marks += _line(line, tone, across, up)
        marks.append(
            f'<text x="{_WIDTH - _RIGHT + 14}" y="{_TOP + 16 * number}" font-size="12" fill="{tone}">'
            f"{escape(name)}</text>"
        )
    return "".join(marks)


def _line(
    line: Sequence[ScalePoint], tone: str, across: Callable[[float], float], up: Callable[[float], float]
) -> list[str]:
    over = [f"{across(each.workers):.1f},{up(max(each.high, 1e-9)):.1f}" for each in line]
    under = [f"{across(each.workers):.1f},{up(max(each.low, 1e-9)):.1f}" for each in reversed(line)]
    middle = [(across(each.workers), up(max(each.epoch_seconds, 1e-9)), each) for each in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in middle)
    dashes = "" if line[0].exact else ' stroke-dasharray="6 3"'
    return [
        f'<polygon points="{" ".join([*over, *under])}" fill="{tone}" opacity="0.15"/>',
        f'<polyline points="{path}" fill="none" stroke="{tone}" stroke-width="2"{dashes}/>',
        *[
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" stroke="{tone}" '
            f'fill="{tone if each.counted else "white"}">'
            f"<title>{escape(each.name)} on {each.workers:,}: {each.epoch_seconds:.4g} s</title></circle>"
            for x, y, each in middle
        ],
    ]


def _few(values: Sequence[int]) -> list[int]:
    """Return the values that have room under an axis, the first and the last among them."""
    found = sorted(set(values))
    step = -(-len(found) // 8)
    return sorted({*found[::step], found[-1]})


def _axis(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    low, high = math.log(min(values)), math.log(max(values))
    wide = high - low or 1.0
    return lambda value: first + (math.log(value) - low) / wide * (last - first)


def _text(x: float, y: float, text: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>'
