from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from weft.report import page
from weft.report.markup import Section
from weft.report.read import read_run

from . import samples

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "\"><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)> ${title} & ' \u202e"


class Tree(HTMLParser):
    """Checks that every tag is closed in order, and gathers tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def headings(self) -> list[str]:
        found = [i for i, (tag, _) in enumerate(self.tags) if tag == "h2"]
        return [str(i) for i in found]


def titles(html: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", html)


def test_finished_run_has_every_section_and_its_numbers(draw: Callable[..., str]) -> None:
    meta = samples.meta()
    html = draw(meta)
    assert titles(html) == [
        "Learning",
        "Time",
        "Memory",
        "Graph",
        "Recipe",
        "Environment",
        "Again",
    ]
    assert "<h1>GCN on cora</h1>" in html
    assert "81.5<span" in html
    for text in ("79.3", "12.3", "345", "2,708", "10,556", "1,433", "weight_decay", "0.0005", "2.13.0"):
        assert text in html
    assert "weft train --set data.path=cora.npz" in html
    assert re.search(r"weft report \S*/run<", html)


def test_page_is_well_formed(draw: Callable[..., str]) -> None:
    html = draw()
    tree = Tree(html)
    assert len([tag for tag, _ in tree.tags if tag == "h1"]) == 1
    svgs = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(svgs) >= 6
    for svg in svgs:
        ElementTree.fromstring(svg)
    named = [held["id"] for _, held in tree.tags if "id" in held]
    assert len(named) == len(set(named))
    links = {held["href"] for tag, held in tree.tags if tag == "a"}
    assert links == {f"#{name}" for name in named}


def test_every_chart_has_a_title_a_description_and_a_table(draw: Callable[..., str]) -> None:
    html = draw()
    charts = re.findall(r'<svg [^>]*role="img".*?</svg>', html, re.DOTALL)
    assert len(charts) == 5
    for chart in charts:
        svg = ElementTree.fromstring(chart)
        assert svg.findtext("title")
        assert svg.findtext("desc")
    assert html.count("<table") >= 5


def test_page_refers_to_nothing_outside(draw: Callable[..., str]) -> None:
    html = draw()
    for _, held in Tree(html).tags:
        for name in ("src", "href", "srcset", "action", "data", "xlink:href", "poster"):
            assert (held.get(name) or "#").startswith("#")
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"@import|url\(", html)
    assert "default-src 'none'" in html


def hostile_run() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    meta = samples.meta(command=HOSTILE, error=HOSTILE, status=HOSTILE, warnings=[HOSTILE])
    meta["recipe"] = {
        "model": {"name": HOSTILE, HOSTILE: HOSTILE},
        HOSTILE: {"key": [HOSTILE]},
        "loose": HOSTILE,
    }
    meta["recipe"]["data"] = {"name": HOSTILE}
    meta["recipe"]["train"] = {"seed": HOSTILE, "precision": HOSTILE}
    meta["versions"] = {HOSTILE: HOSTILE, "weft": HOSTILE}
    meta["machine"] = {HOSTILE: {HOSTILE: [HOSTILE]}}
    meta["summary"]["metrics"] = {"test": {HOSTILE: 0.5}}
    typed = {HOSTILE: 3, "b": 4}
    graph = samples.graph_event(
        node_types=typed,
        edge_types={HOSTILE: 5, "r": 1},
        features={HOSTILE: {"columns": 3, "dtype": HOSTILE}},
        edge_data={HOSTILE: []},
    )
    start = {"event": "start", "strategy": HOSTILE, "device": HOSTILE, "metric": HOSTILE}
    span = {"event": "span", "name": HOSTILE, "seconds": 1.0}
    epoch = samples.epoch_event(1, metrics=(HOSTILE,))
    epoch["seconds"][HOSTILE] = 0.5
    return meta, [
        start,
        graph,
        span,
        epoch,
        {"event": "warning", "message": HOSTILE},
        {"event": "resume", "epoch": HOSTILE},
    ]


def test_hostile_strings_stay_text(draw: Callable[..., str]) -> None:
    html = draw(*hostile_run())
    tree = Tree(html)
    assert [tag for tag, _ in tree.tags].count("script") == 1
    assert not [tag for tag, _ in tree.tags if tag == "img"]
    assert not [name for _, held in tree.tags for name in held if name.startswith("on")]
    assert "alert(1)" in html  # shown, as text
    assert "could not be drawn" not in html


def test_same_run_gives_the_same_bytes(draw: Callable[..., str]) -> None:
    assert draw(name="run") == draw(name="run")


@pytest.mark.slow
def test_ten_thousand_epochs_stay_small(draw: Callable[..., str]) -> None:
    html = draw(None, samples.events(10_000, metrics=("accuracy", "micro_f1", "macro_f1", "roc_auc")))
    assert len(html) < 1_000_000
    assert titles(html)[0] == "Learning"


@pytest.mark.parametrize("num_epochs", [0, 1])
def test_run_that_crashed_early_is_drawn(draw: Callable[..., str], num_epochs: int) -> None:
    meta = samples.meta(status="running")
    del meta["summary"]
    html = draw(meta, samples.events(num_epochs)[:-1])
    Tree(html)
    assert "not finished" in html
    assert "could not be drawn" not in html
    assert ("Learning: no epoch was finished" in html) == (num_epochs == 0)


def test_empty_run_is_drawn_and_says_what_it_lacks(draw: Callable[..., str]) -> None:
    html = draw({}, [])
    Tree(html)
    for note in ("Learning: no epoch", "Graph: the events hold", "Recipe: run.json", "Environment: run.json"):
        assert note in html
    assert "could not be drawn" not in html


@pytest.mark.parametrize(
    "junk", [None, 7, "text", [], [1, "a"], {}, {"a": None}, True, float("nan"), -1e308, [[[]]]]
)
def test_values_of_any_type_do_not_break_the_page(draw: Callable[..., str], junk: object) -> None:
    names = [*samples.graph_event()]
    events: list[dict[str, Any]] = [{"event": "graph", **dict.fromkeys(names, junk)}]
    events[0]["event"] = "graph"
    keys = ("epoch", "loss", "train", "val", "test", "seconds", "memory_bytes", "lr", "time")
    events += [{**samples.epoch_event(1), key: junk} for key in keys]
    events += [
        {"event": kind, "name": junk, "seconds": junk, "message": junk, "summary": junk}
        for kind in ("span", "end", "start")
    ]
    parts = {"tag": [junk] * 3, "size": [junk] * 2, "balance": {"sizes": [junk], "of": junk, "title": junk}}
    for facts in (junk, dict.fromkeys(samples.facts(), junk), parts):
        _drawn_whatever(draw, [*events, {"event": "start", "facts": facts}], junk)


def _drawn_whatever(draw: Callable[..., str], events: list[dict[str, Any]], junk: object) -> None:
    summary = dict.fromkeys([*samples.meta()["summary"], "metric", "metrics", "stopped"], junk)
    for meta in ({**dict.fromkeys(samples.meta(), junk)}, samples.meta(summary=summary)):
        html = draw(meta, events)
        Tree(html)
        assert "could not be drawn" not in html


def test_section_that_fails_leaves_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: object) -> Section:
        raise ZeroDivisionError("no <way>")

    monkeypatch.setattr(page, "SECTIONS", [broken, *page.SECTIONS])
    html = page.render(read_run(samples.write_run(tmp_path, samples.meta(), samples.events(3))))
    assert "Broken: could not be drawn (ZeroDivisionError: no &lt;way&gt;)" in html
    assert "Learning" in titles(html)


def test_adding_a_section_is_one_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        page, "SECTIONS", [lambda run: Section("Traffic ledger", "<p>none</p>"), lambda run: None]
    )
    html = page.render(read_run(samples.write_run(tmp_path, samples.meta(), [])))
    assert '<section id="traffic-ledger"><h2>Traffic ledger</h2><p>none</p></section>' in html
