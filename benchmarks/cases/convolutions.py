"""Each of PyG's convolutions under `weft.accelerate` against PyG's own, forward and backward.

The rows of docs/convolutions.md, at a size where edges are what costs: the page takes the last column.
"""

import copy
import importlib.util
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import weft
from benchmarks.measure import Step, Study, time_by_turns

NODES, EDGES = 10_000, 100_000
WIDTH, OUT = 32, 32
ROUNDS = 3
SECONDS = 220.0
"""What is not measured by then has no row: all of them end in about four minutes."""


def _page() -> Any:
    """Return the script that writes the page, which knows the convolutions."""
    path = Path(__file__).parents[2] / "docs" / "convolutions_page.py"
    spec = importlib.util.spec_from_file_location("convolutions_page", path)
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    return page


def _step(conv: nn.Module, args: list[Any]) -> Step:
    leaves = [each for each in (*tree_leaves(args), *conv.parameters()) if each.requires_grad]

    def step() -> list[Tensor]:
        outs: list[Tensor] = tree_leaves(conv(*args))
        torch.autograd.grad(sum(out.square().mean() for out in outs), leaves, allow_unused=True)
        return [out.detach() for out in outs]

    return step


def rows() -> Iterator[str]:
    """Measure one convolution after the other."""
    page, start = _page(), time.perf_counter()
    yield "| convolution | accelerated | PyG | ratio |"
    yield "|---|---|---|---|"
    for name, (make, names) in page.cases(WIDTH, OUT).items():
        if time.perf_counter() - start > SECONDS:
            return
        if page.is_left_alone(name) or name in page.NEAREST:
            continue
        torch.manual_seed(0)
        conv = make().eval()
        args = page.arguments(names, torch.float32, NODES, EDGES, WIDTH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", weft.WeftWarning)
            steps = {"ours": _step(weft.accelerate(copy.deepcopy(conv)), args), "pyg": _step(conv, args)}
            ours, theirs = (step() for step in steps.values())
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
            timings = time_by_turns(steps, ROUNDS)
        fast, slow = (timings[each].median for each in ("ours", "pyg"))
        yield f"| {name} | {1e3 * fast:.1f} ms | {1e3 * slow:.1f} ms | {slow / fast:.1f} |"


CASES = [
    Study(
        "convolutions",
        f"PyG's convolutions, forward and backward, {NODES:,} nodes, {EDGES:,} edges, {WIDTH} columns",
        rows,
        note=f"Median of {ROUNDS} rounds by turns; outputs are compared first.",
    )
]
