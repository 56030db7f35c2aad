"""The picture of a deal: seconds that each link carries, in order and as dealt, and the bound beside."""

from html import escape

from weft.plan.dealing import Dealing
from weft.sizes import shown

_WIDTH, _ROW, _LEFT, _TOP, _RIGHT = 640, 26, 130, 56, 90
_MOST = 48


def draw_links(dealing: Dealing) -> str:
    """Return an SVG with one row per link, the busiest first: grey in order, blue as dealt, red the least."""
    rows = sorted(dealing.rows(), key=lambda row: -max(row[1], row[2]) / row[3])[:_MOST]
    longest = max((max(before, after) / speed for _, before, after, speed in rows), default=0.0) or 1.0
    height = _TOP + _ROW * max(1, len(rows)) + 24

    def wide(seconds: float) -> float:
        return seconds / longest * (_WIDTH - _LEFT - _RIGHT)

    marks = [_text(8, 20, "seconds an epoch that each link carries", 13)]
    marks.append(
        _text(8, 38, "grey: parts in order; blue: as dealt; red: no deal's busiest link is below", 11)
    )
    for place, (name, before, after, speed) in enumerate(rows):
        y = _TOP + place * _ROW
        told = escape(
            f"{name}: {shown(int(before))} in order, {shown(int(after))} as dealt, "
            f"{shown(int(speed))} a second"
        )
        marks.append(f"<g><title>{told}</title>")
        marks.append(_bar(y, wide(before / speed), "#bbb"))
        marks.append(_bar(y + 10, wide(after / speed), "#247"))
        marks.append(_text(8, y + 14, name, 11))
        end = _LEFT + wide(max(before, after) / speed) + 6
        marks.append(_text(end, y + 14, f"{after / speed:.3g} s", 11) + "</g>")
    x = _LEFT + wide(min(dealing.bound, longest))
    marks.append(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 20}" stroke="#c33" '
        f'stroke-dasharray="4 3"><title>{dealing.bound:.3g} s</title></line>'
    )
    marks.append(_text(x - 20, height - 6, f"{dealing.bound:.3g} s", 11))
    box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', ground, *marks, "</svg>\n"])


def _bar(y: float, width: float, tone: str) -> str:
    return f'<rect x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="9" fill="{tone}"/>'


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>'
