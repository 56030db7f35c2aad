"""A line plot as SVG: speeds and times on logarithmic axes, nothing needed to draw it."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 420, 70, 50, 40, 190
COLOURS = ("#1b6ca8", "#d1495b", "#3b8b52", "#e0912f", "#7a5195", "#444444", "#00a6a6", "#a05a2c")


def log_plot(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str) -> str:
    """Return an SVG with one line a name through its (x, y) points; a name that begins with '(' is dashed."""
    points = [point for line in lines.values() for point in line]
    across = _axis([point[0] for point in points], LEFT, WIDTH - RIGHT)
    up = _axis([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 18, title, "start", 14),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x),
        f'<g transform="rotate(-90 16 {HEIGHT / 2})">{_text(16, HEIGHT / 2, y)}</g>',
    ]
    for value in _ticks([point[0] for point in points]):
        parts.append(_line(across(value), TOP, across(value), HEIGHT - BOTTOM))
        parts.append(_text(across(value), HEIGHT - BOTTOM + 18, f"{value:g}"))
    for value in _ticks([point[1] for point in points]):
        parts.append(_line(LEFT, up(value), WIDTH - RIGHT, up(value)))
        parts.append(_text(LEFT - 6, up(value) + 4, f"{value:g}", "end"))
    for number, (name, line) in enumerate(lines.items()):
        parts += _drawn(name, [(across(a), up(b)) for a, b in line], number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(name: str, line: Sequence[tuple[float, float]], number: int) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    dashes = ' stroke-dasharray="5 4"' if name.startswith("(") else ""
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in line)
    height = TOP + 18 * number
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>',
        *[f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in line if not dashes],
        f'<line x1="{WIDTH - RIGHT + 14}" y1="{height}" x2="{WIDTH - RIGHT + 36}" y2="{height}" '
        f'stroke="{colour}" stroke-width="2"{dashes}/>',
        _text(WIDTH - RIGHT + 42, height + 4, name, "start"),
    ]


def _axis(values: Sequence[float], first: float, last: float):  # type: ignore[no-untyped-def]
    low, high = math.log(min(values) * 0.9), math.log(max(values) * 1.1)
    return lambda value: first + (math.log(value) - low) / (high - low) * (last - first)


def _ticks(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    steps = [digit * 10.0**power for power in range(-4, 7) for digit in (1, 2, 5)]
    return [step for step in steps if low * 0.95 <= step <= high * 1.05]


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(text)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def small_plots(
    title: str, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], *, x: str
) -> str:
    """Return an SVG with one small plot a panel, from zero on; lines of one name have one colour."""
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    height = TOP + 130 * len(panels) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, TOP - 18, title, "start", 14),
    ]
    for place, name in enumerate(names):
        colour, level = COLOURS[place % len(COLOURS)], TOP + 18 * place
        parts.append(
            f'<rect x="{WIDTH - RIGHT + 14}" y="{level - 5}" width="20" height="3" fill="{colour}"/>'
        )
        parts.append(_text(WIDTH - RIGHT + 42, level, name, "start"))
    for place, (unit, lines) in enumerate(panels.items()):
        parts += _panel(unit, lines, names, TOP + 130 * place)
    return "\n".join([*parts, _text((LEFT + WIDTH - RIGHT) / 2, height - 6, x), "</svg>"]) + "\n"


def _panel(
    unit: str, lines: Mapping[str, Sequence[tuple[float, float]]], names: Sequence[str], top: float
) -> list[str]:
    points = [point for line in lines.values() for point in line] or [(0.0, 0.0)]
    far, most = max(a for a, _ in points) or 1.0, max(b for _, b in points) or 1.0
    low, right = top + 100, WIDTH - RIGHT
    parts = [_line(LEFT, low, right, low), _line(LEFT, top, right, top)]
    parts += [_text(LEFT - 6, top + 4, f"{most:,.0f}", "end"), _text(LEFT - 6, low + 4, "0", "end")]
    parts += [
        _text(LEFT, low + 14, "0"),
        _text(right, low + 14, f"{far:.0f}"),
        _text(right - 4, top + 14, unit, "end"),
    ]
    for name, line in lines.items():
        path = " ".join(f"{LEFT + a / far * (right - LEFT):.1f},{low - b / most * 100:.1f}" for a, b in line)
        colour = COLOURS[names.index(name) % len(COLOURS)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return parts
