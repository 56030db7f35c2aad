from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .. import samples
from .test_learning import section

Draw = Callable[..., str]


def drawn(draw: Draw, **changes: Any) -> str:
    return section(draw(None, [samples.graph_event(**changes)]), "graph")


def test_counts_of_a_plain_graph(draw: Draw) -> None:
    html = drawn(draw)
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html))
    assert facts["Nodes"] == "2,708"
    assert facts["Edges"] == "10,556"
    assert facts["Features"] == "1,433 float32"
    assert facts["Non-zero features"] == "1.3 %"
    assert facts["Largest degree"] == "168"
    assert facts["Isolated nodes"] == "3"
    assert facts["Self loops"] == "0"
    assert "Relations" not in facts
    assert "2,708 nodes and 10,556 edges, 3.90 a node." in html


def test_degrees_are_drawn_in_doubling_bins(draw: Draw) -> None:
    html = drawn(draw)
    assert html.count('class="fill t1"') == 1
    assert 'class="line t2"' not in html  # both directions are the same
    assert "degree 4 – 7" in html
    assert "Not drawn: 3 without incoming and outgoing edges." in html


def test_directions_that_differ_are_both_drawn(draw: Draw) -> None:
    html = drawn(draw, out_degree={"histogram": [[0, 2707], [8192, 1]]})
    assert 'class="fill t1"' in html
    assert 'class="line t2"' in html
    assert "Not drawn: 3 without incoming edges and 2,707 without outgoing edges." in html


def test_graph_without_edges_has_no_degree_chart(draw: Draw) -> None:
    empty = {"histogram": [[0, 5]]}
    html = drawn(draw, num_nodes=5, num_edges=0, in_degree=empty, out_degree=empty)
    assert "<h3>Degrees</h3>" not in html
    assert "5 nodes and 0 edges, 0 a node." in html


def test_classes_come_largest_first_and_small_ones_together(draw: Draw) -> None:
    html = told(draw, [1, 3, 2])
    assert re.findall(r'<th scope="row">class (\d)</th>', html) == ["1", "2", "0"]
    assert "3 · 50.0 %" in html
    assert "And 85 smaller classes with 85 targets." in told(draw, [1] * 100)


def told(draw: Draw, sizes: list[int]) -> str:
    """The section of a run whose classes have these sizes."""
    events = samples.events(3)
    start = next(event for event in events if event["event"] == "start")
    start["facts"]["balance"]["sizes"] = sizes
    return section(draw(None, events), "graph")


def test_of_targets_that_were_not_asked_for_nothing_is_told(draw: Draw) -> None:
    events = samples.events(3)
    next(event for event in events if event["event"] == "start")["facts"] = {}
    html = section(draw(None, events), "graph")
    assert "Classes" not in html
    assert "Class balance" not in html


def test_split_sizes_and_the_rest(draw: Draw) -> None:
    html = drawn(draw)
    assert '<th scope="row">validation</th><td class="num">500</td><td class="num">18.5 %</td>' in html
    assert '<th scope="row">in no split</th><td class="num">1,068</td>' in html
    assert "validation" not in drawn(draw, split={"train": 140, "test": 36})


def test_types_and_relations_of_a_typed_graph(draw: Draw) -> None:
    html = drawn(
        draw,
        node_types={"paper": 2000, "author": 708},
        edge_types={"author/writes/paper": 1234, "paper/cites/paper": 99},
        features={"paper": {"columns": 128, "sparse": False, "stored_values": 256000, "dtype": "float32"}},
    )
    assert '<th scope="row">author</th><td class="num">708</td><td class="num">–</td>' in html
    assert '<th scope="row">author/writes/paper</th>' in html
    assert "<dt>Features of paper</dt><dd>128 float32</dd>" in html
    assert "in no split" not in html  # only one of the types has labels


def test_missing_statistics_are_told(draw: Draw) -> None:
    assert "Graph: the events hold no graph statistics" in draw(None, samples.events(2)[1:])
