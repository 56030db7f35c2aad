"""The picture of a partition: rows that travel between parts as a heat map, and how even the parts are."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from weft.graph.parts.assignment import Quality
from weft.report.markup import Bar, bars, panel, panels, small, table
from weft.report.pictures import heat_map
from weft.report.words import count, decimal, percent, size

_MOST = 64  # parts drawn one by one: beyond, cells would be smaller than a pixel or two


def render_partition(title: str, quality: Quality) -> str:
    """Return the page as HTML that loads nothing."""
    style = files("weft.report").joinpath("templates", "page.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    rows = "halo rows" if quality.cuts == "nodes" else "replicas"
    body = panels(
        panel(f"{rows.capitalize()} by part", _links(quality.links, rows)),
        panel("What an epoch sends", _predicted(quality)),
        panel("Parts", _balance(quality), wide=True),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)} · weft</title><style>{style}</style></head><body>"
        f'<header><div class="top"><div class="brand">weft</div></div><h1>{escape(title)}</h1></header>'
        f"<main><section>{table(('', ''), quality_rows(quality))}{body}</section></main></body></html>\n"
    )


def quality_rows(quality: Quality) -> list[tuple[str, str]]:
    """Return the numbers of a partition, named and in words: what the page and the terminal show."""
    rows = []
    if quality.cuts == "nodes":
        rows += [("cut edges", f"{quality.cut_edges:,} ({percent(quality.cut_share)})")]
        rows += [("halo rows", f"{quality.halo_rows:,} ({percent(quality.halo_share)} of the rows held)")]
    else:
        rows += [
            (
                "replicas beside roots",
                f"{quality.halo_rows:,} ({percent(quality.halo_share)} of the rows held)",
            )
        ]
    rows += [("replication factor", f"{quality.replication:.3f}")]
    for name, value in quality.balance.items():
        counts = getattr(quality, name)
        shown = size(max(counts)) if name == "bytes" else count(max(counts))
        words = name.replace("_", " ")
        message = f"{value:.3f} (largest part {shown})" if sum(counts) else "none"
        rows.append((f"balance of {words}", message))
    if quality.moved:
        rows.append(("moved", f"{quality.moved:,} nodes, to fill empty parts"))
    model = f"{quality.layers} layers of {quality.hidden}"
    rows += [
        (f"bytes an epoch, {name}", f"{size(value)} ({model})") for name, value in quality.predicted.items()
    ]
    return rows


def _links(links: list[list[int]], what: str) -> str:
    """Who takes how many rows from whom, as a map."""
    parts = len(links)
    if parts > _MOST:
        return small(f"{parts} parts are too many to draw; partition.json holds the numbers.")
    most = max(max(row) for row in links)
    drawn = heat_map(
        links,
        names=[str(part) for part in range(parts)],
        show=count,
        tell=lambda taker, owner: f"part {taker} takes {links[taker][owner]:,} {what} from part {owner}",
        label=f"{what} between {parts} parts; the largest number is {most:,}",
        rows="the part that takes",
        columns="the part that owns",
    )
    return drawn + small(f"Darkest: {most:,}.")


def _predicted(quality: Quality) -> str:
    most = max(quality.predicted.values()) or 1
    drawn = bars(Bar(name, value / most, size(value)) for name, value in quality.predicted.items())
    return drawn + small(
        f"Predicted for {quality.layers} layers of width {quality.hidden} in float32, all parts together."
    )


def _balance(quality: Quality) -> str:
    drawn = []
    for tone, name in enumerate(("nodes", "edges", "train_nodes", "bytes"), start=1):
        counts = getattr(quality, name)
        if not sum(counts) or len(counts) > _MOST:
            continue
        show = size if name == "bytes" else count
        lines = [
            Bar(f"part {part}", held / max(counts), show(held), f"t{tone}")
            for part, held in enumerate(counts)
        ]
        title = f"{name.replace('_', ' ').capitalize()}: largest over mean {decimal(quality.balance[name])}"
        drawn.append(panel(title, bars(lines)))
    return panels(*drawn)
