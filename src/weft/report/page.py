"""One self-contained page from a run: the headline, then the sections, in the order of `SECTIONS`.

The page loads nothing and needs no JavaScript; its policy forbids the browser to fetch anything at all. The
few lines of script it carries show values under the pointer. The same run folder always gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html import escape
from importlib.resources import files
from string import Template

from weft.report.markup import Section
from weft.report.read import Run
from weft.report.sections.asynchrony import asynchrony
from weft.report.sections.batches import batches
from weft.report.sections.cost import memory, timing
from weft.report.sections.forecast import forecast
from weft.report.sections.graph_facts import graph
from weft.report.sections.headline import headline, title
from weft.report.sections.learning import learning
from weft.report.sections.partitions import partitions
from weft.report.sections.pipeline import pipeline
from weft.report.sections.relations import relations
from weft.report.sections.setup import again, environment, recipe, remarks
from weft.report.sections.workers import workers

SECTIONS: list[Callable[[Run], Section | None]] = [
    remarks,
    learning,
    relations,
    timing,
    forecast,
    batches,
    partitions,
    pipeline,
    asynchrony,
    workers,
    memory,
    graph,
    recipe,
    environment,
    again,
]


def render(run: Run) -> str:
    """Return the whole page as HTML."""
    return compose(
        [held for held in (_draw(section, run) for section in SECTIONS) if held is not None],
        title=title(run),
        folder=run.folder.resolve().name,
        headline=headline(run),
        version=str(run.table("versions").get("weft", "")),
    )


def compose(drawn: list[Section], *, title: str, folder: str, headline: str, version: str) -> str:
    """Return a page of sections under a headline, which is HTML already."""
    shown = [section for section in drawn if section.body]
    missing = [f"{section.title}: {section.note}" for section in drawn if section.note]
    script = _template("page.js")
    return Template(_template("page.html")).substitute(
        title=escape(title),
        folder=escape(folder),
        style=_template("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        headline=headline,
        links="".join(f'<a href="#{_anchor(section)}">{escape(section.title)}</a>' for section in shown),
        sections="".join(_section(section) for section in shown),
        missing=_missing(missing),
        version=escape(version),
    )


def _draw(section: Callable[[Run], Section | None], run: Run) -> Section | None:
    # Events come from any version and any crash: a section that cannot cope must not cost the others.
    try:
        return section(run)
    except Exception as error:
        name = section.__name__.capitalize()
        return Section(name, note=f"could not be drawn ({type(error).__name__}: {error})")


def _section(section: Section) -> str:
    lead = f'<p class="lead">{escape(section.lead)}</p>' if section.lead else ""
    name = _anchor(section)
    return f'<section id="{name}"><h2>{escape(section.title)}</h2>{lead}{section.body}</section>'


def _anchor(section: Section) -> str:
    return re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")


def _missing(notes: list[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<section class="missing"><h2>Not shown</h2><ul>{items}</ul></section>'


def _template(name: str) -> str:
    return files("weft.report").joinpath("templates", name).read_text(encoding="utf-8")
