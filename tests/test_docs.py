"""The documentation runs: every Python block, and every command of a shell block, page by page."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.plan_machine import machine

from weft.machine import usable_cores
from weft.plan.machine import keep_machine

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A block that names a file after its language is the content of that file.
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language, in order."""
    return [body for found, body in BLOCK.findall(page.read_text()) if found == language]


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows."""
    for name, body in FILE.findall(page.read_text()):
        (folder / name).write_text(body)


def know_rates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give plans the rates of a machine; they would measure this one, for minutes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    keep_machine(replace(machine(), cores=usable_cores()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "\n".join(blocks(page, "python"))
    if not code:
        pytest.skip("no Python on this page")
    if "torch_geometric" in code:
        pytest.importorskip("torch_geometric", reason="the page uses PyG")
    know_rates(tmp_path, monkeypatch)
    script = tmp_path / "page.py"
    script.write_text(code)
    result = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stderr[-3000:]


# Names that a file of src/weft/layers imports, and a stack that asks a layer for its widths.
BEFORE = """
import torch, torch.nn.functional as F
import weft
from torch import Tensor
from weft.graph.message.block import Block
from weft.graph.sparse import Features
from weft.layers.base import Layer, Linear, layers
"""
AFTER = """
graph = weft.Graph.from_edges([[0, 1, 2], [1, 2, 0]], x=torch.eye(3))
for options in ({"norm": "layer"}, {"residual": True}, {"jumping": "cat"}):
    assert weft.nn.Stack(3, 2, layer="mine", hidden=4, **options)(graph.block(), graph.x).shape == (3, 2)
layer = layers["mine"](3, 2)
assert (layer.in_features, layer.out_width) == (3, 2)
"""


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/quickstart.md"])
def test_the_layer_that_a_page_teaches_works_in_a_stack(page: str, tmp_path: Path) -> None:
    (taught,) = [body for body in blocks(ROOT / page, "python") if "class Mine" in body]
    taught = taught.split("\n\n\n")[0].replace('@layers.add("mine")\n', "")
    script = tmp_path / "layer.py"
    script.write_text(f'{BEFORE}\n\n@layers.add("mine")\n{taught}\n{AFTER}')
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-3000:]


# Names that files of src/weft/exchanges and src/weft/partitioners import.
PARTS_BEFORE = """
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Unpack
import torch
from torch import Tensor
import weft
from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.exchanges.base import Arrival, Exchange, check_exchange, exchanges
from weft.graph.graph import Graph
from weft.partitioners.base import Partitioner, partitioners
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.halo.halo_parts import HaloParts
from weft.strategies.local import LocalGraph
from weft.strategies.reducer import Summed
"""
PARTS_AFTER = """
assert check_exchange({"name": "damped", "factor": 0.5}) == ("damped", {"factor": 0.5})
graph = weft.datasets.open_dataset(name="community", nodes=60, features=4, classes=2)
weft.strategies.strategies["halo"].exchanges += ("damped",)
losses = {}
for factor in (0.5, 1.0):
    cut = {"name": "halo", "partitioner": {"name": "stripes", "width": 3}}
    cut["exchange"] = {"name": "damped", "factor": factor}
    losses[factor] = weft.train(graph, "sage", epochs=2, hidden=4, strategy=cut, parts=2).loss
thinned = weft.train(graph, "sage", epochs=2, hidden=4, strategy={"name": "thinned", "share": 0.5}).loss
for loss in (losses[1.0], thinned):  # in one process nothing travels
    assert abs(loss - weft.train(graph, "sage", epochs=2, hidden=4).loss) < 1e-5
"""


def test_exchange_strategy_and_partitioner_that_contributors_are_taught_work(tmp_path: Path) -> None:
    taught = [body for body in blocks(ROOT / "CONTRIBUTING.md", "python") if "class Mine" not in body]
    assert [body.split('"')[1] for body in taught] == ["damped", "thinned", "stripes"]
    code = PARTS_BEFORE + "\n\n".join(taught)
    code = code.replace('"""Deal out nodes in turn, `width` at a time."""', "isolated = False")  # no child
    script = tmp_path / "parts.py"
    script.write_text(code + PARTS_AFTER)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-3000:]


def test_the_page_on_strategies_names_every_one_and_where_it_is_exact() -> None:
    from weft.exchanges.base import exchanges
    from weft.partitioners.base import partitioners
    from weft.strategies.base import strategies

    page = (ROOT / "docs" / "choosing-a-strategy.md").read_text()
    for name in (*exchanges.names(), *partitioners.names(), *strategies.names()):
        assert f"`{name}`" in page or f'"{name}"' in page or name in ("single", "dgl"), name
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    for name in exchanges.names():
        for option, value in (exchanges[name].exact_at or {}).items():
            told = [row[-2] for row in rows if f"`{name}`" in row[2]]
            assert any(f"{option} = {value:g}" in cell for cell in told), name


def test_the_page_on_tasks_names_every_one_with_its_losses_and_what_it_is_judged_by() -> None:
    from weft.tasks.base import tasks

    page = (ROOT / "docs" / "tasks.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for name in tasks.names():
        assert name in rows, f"enter {name} in the table of docs/tasks.md"
        for word in (*tasks[name].losses, tasks[name].metric):
            assert f"`{word}`" in rows[name], name


# These pages start processes many times, which takes most of a minute, or minutes.
LONG = (
    "choosing-a-strategy.md",
    "from-tables-to-predictions.md",
    "inference.md",
    "knowledge-graphs.md",
    "mini-batches.md",
    "planning.md",
    "simulating.md",
    "tasks.md",
    "training-from-records.md",
)
LONGER = [pytest.mark.slow, pytest.mark.timeout(1200)]  # each command has a limit of its own


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=LONGER if page.name in LONG else []) for page in PAGES],
    ids=[page.name for page in PAGES],
)
def test_commands_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [
        line for body in blocks(page, "bash") for line in body.splitlines() if line.startswith("weft ")
    ]
    if not commands:
        pytest.skip("no commands on this page")
    write_files(page, tmp_path)
    know_rates(tmp_path, monkeypatch)
    for command in commands:
        words = [sys.executable, "-m", "weft", *shlex.split(command)[1:]]
        result = subprocess.run(
            words,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert result.returncode == 0, f"{command}\n{result.stderr[-3000:]}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_reference_of_recipes_is_what_the_code_accepts() -> None:
    spec = importlib.util.spec_from_file_location("recipe_page", ROOT / "docs" / "recipe_page.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    same = made.PAGE.read_text(encoding="utf-8") == made.page()
    assert same, f"docs/recipe.md is not what the code accepts; write it anew: {made.COMMAND}"
