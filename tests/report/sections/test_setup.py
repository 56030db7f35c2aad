from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from html import unescape

from .. import samples
from .test_learning import section

Draw = Callable[..., str]


def test_recipe_is_shown_and_its_toml_can_be_read_back(draw: Draw) -> None:
    meta = samples.meta()
    meta["recipe"]["graph"] = {"num_nodes": 2708}
    html = section(draw(meta), "recipe")
    assert "<dt>weight_decay</dt><dd>0.0005</dd>" in html
    assert "<dt>norm</dt><dd>none</dd>" in html
    assert "num_nodes" not in html  # what the recipe met is no setting
    toml = re.search(r"<pre><code>(.*?)</code></pre>", html, re.DOTALL)
    assert toml
    read = tomllib.loads(unescape(toml.group(1)))
    assert read["train"]["weight_decay"] == 5e-4
    assert read["model"] == {"name": "gcn", "layers": 2, "hidden": 16, "dropout": 0.5}


def test_reason_for_the_strategy_is_given(draw: Draw) -> None:
    events = [{"event": "start", "strategy": "single", "why": "the graph fits"}]
    assert "Strategy single: the graph fits." in section(draw(None, events), "recipe")


def test_environment_says_which_kernels_ran(draw: Draw) -> None:
    html = section(draw(), "environment")
    assert "<dt>torch</dt><dd>2.13.0</dd>" in html
    assert "<dt>native core</dt><dd>yes</dd>" in html
    assert "Kernels ran on the native core." in html
    without = section(draw(samples.meta(machine={"native_core": False})), "environment")
    assert "without the native core" in without


def test_remarks_gather_errors_warnings_and_resumes_once(draw: Draw) -> None:
    warning = {"event": "warning", "message": "native core missing"}
    html = section(
        draw(samples.meta(error="boom"), [warning, warning, {"event": "resume", "epoch": 40}]), "remarks"
    )
    assert "boom" in html
    assert "native core missing (2 times)" in html
    assert "The run was continued after epoch 40." in html
    assert section(draw(), "remarks") == ""


def test_command_and_how_to_draw_again(draw: Draw) -> None:
    html = section(draw(name="a run"), "again")
    assert "weft train --set data.path=cora.npz --set model.name=gcn" in html
    assert "/a run&#x27;" in html.split("weft report ")[1]
    meta = samples.meta()
    meta["summary"]["out"] = "runs/first"
    assert "weft report runs/first<" in section(draw(meta), "again")
