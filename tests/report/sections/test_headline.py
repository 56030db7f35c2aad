from __future__ import annotations

import re
from collections.abc import Callable

from .. import samples

Draw = Callable[..., str]


def tiles(html: str) -> dict[str, str]:
    found = re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)<small>", html)
    return {name: re.sub(r"<.*?>", "", value) for name, value in found}


def result(html: str) -> tuple[str, str]:
    big = re.search(r'class="big">(.*?)</div>', html)
    of = re.search(r'class="of">(.*?)</div>', html)
    assert big
    assert of
    return re.sub(r"<.*?>", "", big.group(1)), of.group(1)


def test_headline_gives_the_summary_in_units_of_people(draw: Draw) -> None:
    html = draw()
    assert result(html) == ("81.5%", "Test accuracy")
    assert tiles(html) == {
        "Validation": "79.3 %",
        "Loss": "0.331",
        "Epochs": "200",
        "Time": "3.46 s",
        "Epoch": "12.3 ms",
        "Memory": "345 MiB",
    }


def test_the_loss_says_whose_it_is(draw: Draw) -> None:
    assert "0.331<small>training, last epoch</small>" in draw()


def test_a_run_from_python_is_named_for_its_layer_and_the_size_of_its_graph(draw: Draw) -> None:
    meta = samples.meta()
    meta["recipe"] |= {"data": {}, "model": {"class": "Stack", "layer": "sage"}, "graph": {"num_nodes": 5000}}
    assert "<h1>SAGE on 5,000 nodes</h1>" in draw(meta)


def test_run_without_test_nodes_is_headed_by_validation(draw: Draw) -> None:
    meta = samples.meta()
    del meta["summary"]["test_accuracy"]
    html = draw(meta, samples.events(5, test=False))
    assert result(html) == ("79.3%", "Validation accuracy")
    assert "Validation" not in tiles(html)


def test_multi_label_run_is_headed_by_its_own_metric(draw: Draw) -> None:
    meta = samples.meta()
    meta["summary"] |= {"metric": "micro_f1", "metrics": {"test": {"micro_f1": 0.651, "accuracy": 0.1}}}
    events = samples.events(5, metrics=("accuracy", "micro_f1"))
    start = next(event for event in events if event["event"] == "start")
    start["facts"] = {"called": "multi-label node classification", "tag": [100, "label", "labels"]}
    html = draw(meta, events)
    assert result(html) == ("65.1%", "Test micro F1")
    assert "<li>multi-label node classification</li><li>100 labels</li>" in html


def test_crashed_run_takes_its_numbers_from_the_events(draw: Draw) -> None:
    meta = samples.meta(status="running")
    del meta["summary"]
    events = samples.events(5)[:-1]
    html = draw(meta, events)
    assert tiles(html)["Epochs"] == "5"
    best = max(events[3:], key=lambda event: event["val"]["accuracy"])
    assert result(html) == (f"{100 * best['test']['accuracy']:.1f}%", "Test accuracy")
    assert '<li class="state bad">not finished</li>' in html


def test_failed_run_says_so_and_why(draw: Draw) -> None:
    html = draw(
        samples.meta(status="failed", error="the loss became nan in epoch 3", summary=None),
        samples.events(2)[:-1],
    )
    assert '<li class="state bad">failed</li>' in html
    assert "the loss became nan in epoch 3" in html


def test_run_ended_by_patience_says_so(draw: Draw) -> None:
    meta = samples.meta()
    meta["summary"]["stopped"] = "patience"
    assert "done, stopped early" in draw(meta)


def test_model_built_by_hand_is_named_by_its_class(draw: Draw) -> None:
    assert "<h1>MyNet</h1>" in draw(samples.meta(recipe={"model": {"class": "MyNet"}, "data": {}}))
