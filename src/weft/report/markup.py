"""The pieces of HTML that sections are put together from.

Arguments named `html`, `panels` or `body` are HTML already; every other text is plain and is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, repeat


@dataclass(frozen=True)
class Section:
    """One section of the page. With an empty `body` only its `note` is shown, at the end of the page."""

    title: str
    body: str = ""
    lead: str = ""
    """A sentence under the title that says what there is to see; plain text."""
    note: str = ""
    """Why the section is missing, or what is missing in it; plain text."""


@dataclass(frozen=True)
class Bar:
    """One horizontal bar: a name, a share of the longest, and the value in words."""

    name: str
    share: float
    text: str
    tone: str = "t1"


def panels(*html: str) -> str:
    """Panels side by side where there is room; empty ones are left out."""
    return f'<div class="panels">{"".join(html)}</div>' if any(html) else ""


def panel(title: str, body: str, *, wide: bool = False, aside: str = "") -> str:
    """A titled box; `wide` takes the whole row; `aside` is HTML to the right of the title (a legend)."""
    kind = "panel wide" if wide else "panel"
    head = f'<div class="cap"><h3>{escape(title)}</h3>{aside}</div>'
    return f'<div class="{kind}">{head}{body}</div>'


def legend(items: Iterable[tuple[str, str, str]], *, lines: bool = False) -> str:
    """A legend of (tone, name, value) entries; `lines`: as strokes, else as squares."""
    shape = "stroke" if lines else "square"
    held = [
        f'<li><i class="{shape} {tone}"></i>{escape(name)}{f" <b>{escape(value)}</b>" if value else ""}</li>'
        for tone, name, value in items
    ]
    return f'<ul class="legend">{"".join(held)}</ul>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, one a line."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{rows}</dl>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str = "",
    words: int = 1,
    tones: Sequence[str] = (),
) -> str:
    """A table whose first `words` columns are text and whose others are numbers, set right.

    `tones` are the colours of the rows, where they are those of a chart.
    """
    top = "".join(f'<th scope="col"{_numeric(i, words)}>{escape(name)}</th>' for i, name in enumerate(head))
    shades = chain(tones, repeat(""))
    body = "".join(f"<tr>{_row(row, words, tone)}</tr>" for row, tone in zip(rows, shades))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def fold(summary: str, body: str) -> str:
    """Something that opens on request; print leaves it as it is."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def bars(rows: Iterable[Bar]) -> str:
    """Horizontal bars, one a line, as a table of names and values for those who do not see them."""
    lines = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th>'
        f'<td class="bar"><i class="{row.tone}" style="width:{_width(row.share)}"></i></td>'
        f"<td>{escape(row.text)}</td></tr>"
        for row in rows
    )
    return f'<table class="bars"><tbody>{lines}</tbody></table>'


def strip(parts: Iterable[tuple[str, float]]) -> str:
    """One bar cut into (tone, share) pieces; decoration beside a legend that gives the numbers."""
    held = "".join(
        f'<i class="{tone}" style="width:{_width(share)}"></i>' for tone, share in parts if share > 0
    )
    return f'<div class="strip" aria-hidden="true">{held}</div>'


def code(text: str) -> str:
    """A block of code."""
    return f"<pre><code>{escape(text)}</code></pre>"


def small(text: str) -> str:
    """A remark under a chart or a table."""
    return f'<p class="remark">{escape(text)}</p>'


def _width(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def _numeric(index: int, words: int) -> str:
    return "" if index < words else ' class="num"'


def _row(row: Sequence[str], words: int, tone: str = "") -> str:
    mark = f'<i class="square {tone}"></i>' if tone else ""
    first = f'<th scope="row">{mark}{escape(row[0])}</th>' if row else ""
    return first + "".join(f"<td{_numeric(i, words)}>{escape(cell)}</td>" for i, cell in enumerate(row) if i)
