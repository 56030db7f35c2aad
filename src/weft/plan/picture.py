"""The picture of a plan: seconds against memory, and against dollars where there are prices; the front."""

from collections.abc import Callable, Sequence
from html import escape
from math import log10

from weft.plan.forecast import Forecast
from weft.plan.planning import Plan
from weft.plan.shown import name_of
from weft.sizes import shown

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 64
Cost = Callable[[Forecast], float]


def draw(plan: Plan) -> str:
    """Return an SVG with one panel for memory and, where there are prices, one for dollars."""
    panels: list[tuple[str, Cost, Callable[[float], str]]] = [
        ("memory of a worker", lambda each: float(each.peak_memory_bytes), shown)
    ]
    if any(each.dollars_per_epoch for each in plan.configurations):
        panels.append(("dollars an epoch", lambda each: each.dollars_per_epoch or 0.0, lambda v: f"${v:.2g}"))
    drawn = [
        f'<g transform="translate(0 {place * _HEIGHT})">{_panel(plan, title, cost, words)}</g>'
        for place, (title, cost, words) in enumerate(panels)
    ]
    height = _HEIGHT * len(panels)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *drawn, "</svg>\n"])


def front(held: Sequence[Forecast], cost: Cost) -> list[Forecast]:
    """Return those that no other beats in both seconds and cost, the fastest first."""
    best: list[Forecast] = []
    for each in sorted(held, key=lambda each: (each.epoch_seconds, cost(each))):
        if not best or cost(each) < cost(best[-1]):
            best.append(each)
    return best


def _panel(plan: Plan, title: str, cost: Cost, words: Callable[[float], str]) -> str:
    held = [each for each in plan.configurations if each.epoch_seconds > 0 and cost(each) > 0]
    if not held:
        return ""
    across, up = _scale([each.epoch_seconds for each in held]), _scale([cost(each) for each in held])

    def at(each: Forecast) -> tuple[float, float]:
        x = _MARGIN + across(each.epoch_seconds) * (_WIDTH - 2 * _MARGIN)
        return x, _HEIGHT - _MARGIN - up(cost(each)) * (_HEIGHT - 2 * _MARGIN)

    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, front(held, cost)))
    marks = [f'<polyline points="{path}" fill="none" stroke="#999" stroke-dasharray="4 3"/>']
    for each in held:
        x, y = at(each)
        tone = "#c33" if each is plan.recommended else "#247" if each.exact else "#b80"
        told = escape(f"{name_of(each)} on {each.workers}: {each.epoch_seconds:.3g} s, {words(cost(each))}")
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{tone}"><title>{told}</title></circle>')
        if each in front(held, cost):
            label = escape(f"{name_of(each)}, {each.workers}")
            marks.append(f'<text x="{x + 6:.1f}" y="{y - 5:.1f}" font-size="10">{label}</text>')
    low, high = min(map(cost, held)), max(map(cost, held))
    fast, slow = min(each.epoch_seconds for each in held), max(each.epoch_seconds for each in held)
    ends = [
        (4, _HEIGHT - _MARGIN, words(low)),
        (4, _MARGIN, words(high)),
        (_MARGIN, _HEIGHT - 36, f"{fast:.3g} s an epoch"),
        (_WIDTH - _MARGIN - 40, _HEIGHT - 36, f"{slow:.3g} s"),
        (_MARGIN, 24, f"{title} against seconds; red: recommended, blue: exact, amber: approximate"),
    ]
    marks += [f'<text x="{x}" y="{y}" font-size="11">{escape(text)}</text>' for x, y, text in ends]
    return "".join(marks)


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Return where a value lies among others, 0 … 1, in logarithms."""
    low, high = log10(min(values)), log10(max(values))
    return lambda value: 0.5 if high == low else (log10(value) - low) / (high - low)
