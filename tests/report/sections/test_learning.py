from __future__ import annotations

import re
from collections.abc import Callable

from .. import samples

Draw = Callable[..., str]


def section(html: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">.*?</section>', html, re.DOTALL)
    return found.group() if found else ""


def test_curves_are_drawn_for_every_split_with_the_best_epoch_marked(draw: Draw) -> None:
    html = section(draw(), "learning")
    loss, accuracy = re.findall(r'<div class="panel">.*?</svg>', html, re.DOTALL)[:2]
    assert loss.count('class="line') == 1
    assert accuracy.count('class="line') == 3
    assert accuracy.count('class="mark"') == 1
    assert "best epoch" in accuracy
    assert "Best epoch:" in html


def test_single_epoch_is_drawn_as_dots(draw: Draw) -> None:
    html = section(draw(None, samples.events(1)), "learning")
    assert 'class="line' not in html
    assert html.count('class="dot t') == 4


def test_loss_that_is_not_finite_is_counted_and_left_open(draw: Draw) -> None:
    events = samples.events(20)
    for event in events:
        if event["event"] == "epoch" and 8 <= event["epoch"] <= 10:
            event["loss"] = None
    html = section(draw(None, events), "learning")
    assert "The loss was not a finite number in 3 epochs, first in epoch 8." in html
    path = re.search(r'<path class="line t3" d="(.*?)"', html)
    assert path
    assert path.group(1).count("M") == 2


def test_run_whose_every_loss_is_nan_still_shows_its_metrics(draw: Draw) -> None:
    events = [{**event, "loss": None} if event["event"] == "epoch" else event for event in samples.events(5)]
    html = section(draw(None, events), "learning")
    assert "<h3>Accuracy</h3>" in html
    assert "<h3>Loss</h3>" not in html


def test_loss_over_many_decades_gets_a_logarithmic_axis(draw: Draw) -> None:
    events = samples.events(20)
    for event in events:
        if event["event"] == "epoch":
            event["loss"] = 10.0 ** -(event["epoch"] / 5)
    html = section(draw(None, events), "learning")
    assert ">0.001</span>" in html


def test_scores_of_the_returned_weights_are_listed(draw: Draw) -> None:
    meta = samples.meta()
    meta["summary"]["metrics"] = {
        "val": {"macro_f1": 0.784, "loss": 0.8125},
        "test": {"macro_f1": 0.81, "loss": 0.75},
    }
    html = section(draw(meta), "learning")
    assert (
        '<tr><th scope="row">Macro F1</th><td class="num">78.4 %</td><td class="num">81.0 %</td></tr>' in html
    )
    assert '<tr><th scope="row">Loss</th><td class="num">0.812</td><td class="num">0.750</td></tr>' in html


def test_learning_rate_is_drawn_only_where_it_changes(draw: Draw) -> None:
    events = samples.events(10)
    assert "Learning rate" not in draw(None, events)
    events[-2]["lr"] = 0.005
    assert "<h3>Learning rate</h3>" in draw(None, events)


def test_long_runs_are_listed_in_part_with_the_best_epoch(draw: Draw) -> None:
    html = section(draw(None, samples.events(1000)), "learning")
    assert re.search(r"2[45] of 1,000 epochs", html)
    assert "(best)" in html
