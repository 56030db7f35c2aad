"""Prove this installation: kernels, random draws, a small training run, and that workers equal one process.

Without names the quick parts run: all but equivalence and plan, which start workers. `plan` makes a few small
runs and lays what they sent, held and took beside what was planned.

examples:
  weft selftest
  weft selftest kernels
  weft selftest plan
  weft selftest equivalence --parts 1,2,4
  weft selftest equivalence --graph my_graph.npz recipe.toml
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from weft.cli import equivalence, plan_proof

if TYPE_CHECKING:
    from torch import Tensor

Check = tuple[str, bool, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    known = ", ".join(_known())
    parser.add_argument("checks", nargs="*", metavar="PART", help=f"{known} (default: all but the last two)")
    equivalence.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the parts, print a table, and return 0 only if every check holds."""
    from weft.comm import guarded, is_worker

    recipes = [word for word in options.checks if word.endswith(".toml")]
    parts = [word for word in options.checks if word not in recipes]
    _check(parts, recipes, options)
    if equivalence.NAME in parts and is_worker():
        return guarded(lambda: equivalence.run_rank(options, next(iter(recipes), None)))
    quick = [part for part in parts if part in PARTS]
    code = _run_quick(quick or list(PARTS)) if quick or not parts else 0
    if plan_proof.NAME in parts:
        code = plan_proof.run() or code
    if equivalence.NAME in parts:
        code = equivalence.run(options, next(iter(recipes), None)) or code
    return code


def _known() -> list[str]:
    return [*PARTS, plan_proof.NAME, equivalence.NAME]


def _check(parts: list[str], recipes: list[str], options: argparse.Namespace) -> None:
    from weft.errors import RecipeError
    from weft.registry import suggest

    known = _known()
    for part in parts:
        if part not in known:
            raise RecipeError(f"no selftest {part!r}; {suggest(part, known)}known: {', '.join(known)}")
    asked = recipes or options.graph or options.parts is not None or options.cover
    if asked and equivalence.NAME not in parts:
        raise RecipeError("a recipe, --graph, --parts and --cover are for: weft selftest equivalence")
    if len(recipes) > 1:
        raise RecipeError(f"expected one recipe, got {', '.join(recipes)}")


def _run_quick(parts: list[str]) -> int:
    from weft.cli.output import show_table

    failed = 0
    for part in parts:
        began = time.perf_counter()
        checks = list(PARTS[part]())
        failed += sum(not holds for _, holds, _ in checks)
        rows = [(" ok" if holds else " FAILED", name, detail) for name, holds, detail in checks]
        show_table(f"{part} ({time.perf_counter() - began:.1f} s)", rows)
    print("all checks hold" if not failed else f"{failed} checks FAILED")
    return 1 if failed else 0


def kernels() -> Iterator[Check]:
    """Compare outputs and gradients of the native kernels with their plain PyTorch definition."""
    import torch

    from weft.kernels import native

    yield "native core", native.available(), native.describe()
    for name, operator, inputs in _cases():
        outputs = []
        for reference in (False, True):
            held = [value.clone().requires_grad_() for value in inputs]
            if reference:
                with native.disabled():
                    outputs.append(_with_gradients(operator(*held), held))
            else:
                outputs.append(_with_gradients(operator(*held), held))
        gaps = [((a - b).abs().max() / b.abs().max().clamp(min=1)).item() for a, b in zip(*outputs)]
        tolerance = 1e-5 if inputs[0].dtype == torch.float32 else 1e-10
        yield name, max(gaps) <= tolerance, f"largest difference {max(gaps):.1e}, gradients included"


def draws() -> Iterator[Check]:
    """Hold the random draws to fixed vectors, and the kernels' draws to those of numpy."""
    import numpy as np
    import torch

    from weft import draw, kernels

    key = draw.fold(7, draw.Stream.DROPOUT, epoch=3, step=1, layer=2)
    yield "key of a draw", key == VECTOR_KEY, f"{key:#018x}"
    bits = draw.draw(key, np.arange(4)).tolist()
    yield "bits of a draw", bits == VECTOR_BITS, ", ".join(f"{value:#010x}" for value in bits)
    ids = torch.arange(257)
    clock = torch.tensor([7, 3, 1])
    kept = kernels.dropout(torch.ones(257, 33), ids, 0.3, clock=clock, layer=2) != 0
    expected = draw.draw(key, np.arange(257)[:, None], np.arange(33)) >= draw.threshold(0.3)
    same = bool((kept.numpy() == expected).all())
    yield "dropout of the kernels", same, f"{kept.float().mean().item():.3f} kept at p = 0.3"


def training() -> Iterator[Check]:
    """Train a small model, stop it, continue it, and compare with a run that was never stopped."""
    import torch

    from weft.datasets import open_dataset
    from weft.train.launch import train

    graph = open_dataset(name="community", nodes=600, seed=1)
    settings: dict[str, Any] = {"hidden": 16, "epochs": 20, "eval_every": 5}
    whole = train(graph, "sage", **settings)
    accuracy = whole.test_accuracy or 0.0
    chance = 1.0 / graph.num_classes
    yield "learns", accuracy > 1.5 * chance, f"test accuracy {accuracy:.2f}, chance {chance:.2f}"
    with tempfile.TemporaryDirectory() as folder:
        asked = iter(range(100))
        train(graph, "sage", **settings, out=f"{folder}/run", stop=lambda: next(asked) == 7)
        resumed = train(graph, "sage", **settings, out=f"{folder}/run", resume=True)
    pairs = zip(whole.model.state_dict().values(), resumed.model.state_dict().values())
    equal = all(torch.equal(a, b) for a, b in pairs)
    yield "resumes bit for bit", equal, "8 epochs, stopped, 12 more: the weights of 20 in one go"


PARTS: dict[str, Callable[[], Iterator[Check]]] = {"kernels": kernels, "draws": draws, "training": training}
VECTOR_KEY = 0xE049531D11ED9CB3
VECTOR_BITS = [0x6B45357D, 0x5F9EC48D, 0x7F0887B9, 0xE85A7906]


def _cases() -> Iterator[tuple[str, "Callable[..., Tensor]", "list[Tensor]"]]:
    """Give operators with their float inputs, over a small graph with a hub and empty rows."""
    import torch

    from weft import kernels as k

    generator = torch.Generator().manual_seed(0)
    src = torch.randint(0, 200, (9000,), generator=generator)
    dst = torch.cat(
        [torch.zeros(5000, dtype=torch.int64), torch.randint(2, 150, (4000,), generator=generator)]
    )
    indptr, indices, _ = k.build_csr(src, dst, 150)
    offsets = torch.tensor([0, 60, 60, 200])

    def values(*shape: int) -> "Tensor":
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    yield "spmm, sum", lambda x, w: k.spmm(indptr, indices, x, w), [values(200, 37), values(9000)]
    yield "spmm, mean", lambda x: k.spmm(indptr, indices, x, reduce="mean"), [values(200, 16)]
    yield "spmm, max", lambda x: k.spmm(indptr, indices, x, reduce="max"), [values(200, 16)]
    yield "sddmm", lambda a, b: k.sddmm(indptr, indices, a, b), [values(200, 2, 8), values(150, 2, 8)]
    yield "edge_softmax", lambda s: k.edge_softmax(indptr, s), [values(9000, 4)]
    heads = [values(200, 4), values(150, 4), values(200, 4, 8)]
    yield "attention", lambda s, d, v: k.attention(indptr, indices, s, d, v), heads
    pair = [values(200, 4, 8), values(150, 4, 8), values(4, 8), values(200, 4, 8)]
    yield "attention_gatv2", lambda s, d, a, v: k.attention_gatv2(indptr, indices, s, d, a, v), pair
    dot = [values(200, 4, 8), values(150, 4, 8), values(200, 4, 8)]
    yield "attention_dot", lambda s, d, v: k.attention_dot(indptr, indices, s, d, v), dot
    yield "gather", lambda x: k.gather(x, src), [values(200, 8)]
    yield "segment_matmul", lambda x, w: k.segment_matmul(x, offsets, w), [values(200, 8), values(3, 8, 5)]


def _with_gradients(output: "Tensor", inputs: "list[Tensor]") -> "list[Tensor]":
    """Return the output and the gradient of each input under a fixed, uneven weighting."""
    import torch

    weighting = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return [output.detach(), *torch.autograd.grad((output * weighting).sum(), inputs)]
