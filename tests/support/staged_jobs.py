"""What ranks do in the tests of the staged strategy: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import MODELS, cases, graph_of, model_of, parts_of, trained
from layout_jobs import cell, differences, received_words
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from weft.comm.group import Group
from weft.errors import InputError
from weft.graph import Graph
from weft.strategies.merged.grid import Grid
from weft.strategies.merged.staged import Staged
from weft.strategies.single import Single
from weft.train.model import adapt

SUMS = ("gcn", "sage mean", "gin", "sgc")  # and appnp in the proof of equivalence
WIDTH = 6


def promises(group: Group) -> dict[str, Any]:
    """Return where stages differ from one process, what they move, and how much they hold."""
    forms = [each["form"] for each in Staged.layouts(group.size)]
    return {
        "wrong": [wrong for form in forms for wrong in equal_to_one_process(group, form)],
        "words": {form: moved(group, form) for form in forms},
        "held": {form: most_rows(group, form) for form in forms},
        "refused": [said for form in forms for said in refusals(group, form)],
    }


def made(group: Group, graph: Graph, kind: str, form: str) -> Staged:
    """Return the strategy on what this rank holds."""
    shape = Staged.shape({"form": form}, group.size)
    local = cell(group, graph, parts_of(kind, group.size), shape)
    return Staged(local, seed=3, group=group, form=form)  # type: ignore[arg-type]


def equal_to_one_process(group: Group, form: str) -> list[str]:
    """Train models of sums in stages and in one process; return where they differ."""
    wrong: list[str] = []
    for number, name in enumerate(SUMS):
        chosen = [(kind, dtype) for kind, dtype in cases(name) if kind != "typed"]
        for place, (kind, dtype) in enumerate(chosen):
            turn = place // 2 + number
            if (turn % 3 and group.size > 1) or (turn % 5 and dtype == torch.float32):
                continue
            graph = adapt(graph_of(kind), MODELS[name][0]).to(dtype=dtype)
            strategy = made(group, graph, kind, form)
            found = trained(strategy, model_of(strategy.graph, name, dtype))
            if group.rank == 0:
                reference = trained(Single(graph, seed=3), model_of(graph, name, dtype))
                wrong += differences(found, reference, f"{form}: {name} on {kind} in {dtype}", dtype)
    return wrong


def moved(group: Group, form: str) -> dict[str, int]:
    """Return the words that this rank receives for a weighted aggregate and its gradient, and those due."""
    graph = graph_of("hub")
    strategy = made(group, graph, "hub", form)
    block = strategy.layout.training_block()
    h = torch.ones(block.num_dst, WIDTH, requires_grad=True)
    group.ledger.clear()
    block.aggregate(h, weight=block.edge("weight").float()).sum().backward()
    found = received_words(group)
    return {"found": found, "due": due(group, graph, form)}  # type: ignore[dict-item]


def due(group: Group, graph: Graph, form: str) -> dict[str, int]:
    """Return the words of the formulas, of this rank: its rows, and the blocks of A of its grid row."""
    rows, side = Staged.shape({"form": form}, group.size)
    parts = parts_of("hub", group.size)
    i, j = divmod(group.rank, side)
    block = parts // side if form == "2d" else parts  # the row block of each node
    own = int((parts == group.rank).sum())
    width = WIDTH * (j + 1) // side - WIDTH * j // side
    sizes = torch.bincount(block, minlength=rows)
    words = {
        "stage forward": int(sizes.sum() - sizes[i]) * width,
        "stage backward": int(sizes[i]) * (rows - 1) * width,
    }
    if form == "2d":
        src, dst = block[graph.indices.long()], block[torch.repeat_interleave(graph.indptr.diff())]
        edges = torch.bincount(src[dst == i], minlength=rows)
        foreign = int(edges.sum() - edges[j])
        words["matrix forward"] = 2 * foreign + (side - 1) * int(sizes[i])
        words["matrix backward"] = 2 * foreign + int(sizes.sum() - sizes[j])
        turn = (int(sizes[i]) - own) * width + own * (WIDTH - width)
        words |= {"turn forward": turn, "turn backward": turn}
    return {name: count for name, count in words.items() if count}


class Largest(TorchDispatchMode):
    """Notes the rows of the largest floating tensor that is made."""

    rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else [out]:
            if isinstance(each, Tensor) and each.is_floating_point() and each.dim() == 2:
                self.rows = max(self.rows, each.numel() // WIDTH)
        return out


def most_rows(group: Group, form: str) -> tuple[int, int]:
    """Return the most rows of full width in any one tensor of an aggregate: in stages, and gathered."""
    found = []
    graph = graph_of("directed")
    shape = Staged.shape({"form": form}, group.size)
    gathered = Grid(
        cell(group, graph, parts_of("directed", group.size), (group.size, 1)),
        seed=3,
        group=group,
        rows=group.size,
    )
    assert shape[0] * shape[1] == group.size
    for strategy in (made(group, graph, "directed", form), gathered):
        block = strategy.layout.training_block()
        h = torch.ones(block.num_dst, WIDTH, requires_grad=True)
        with Largest() as seen:
            block.aggregate(h, "mean").sum().backward()
        strategy.end_step()
        found.append(seen.rows)
    return found[0], found[1]


def refusals(group: Group, form: str) -> list[str]:
    """Return what models are told that need more than sums."""
    said = []
    for name in ("gat", "sage max", "edgeconv", "rgcn"):
        graph = adapt(graph_of("directed"), MODELS[name][0])
        strategy = made(group, graph, "directed", form)
        model = model_of(strategy.graph, name, torch.float32)
        try:
            strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.1))
            said.append(f"{name} was taken")
        except InputError as error:
            said.append(str(error))
    return said
