"""What ranks do in the tests of the proof: importable by name, so that other processes find it."""

from typing import Any

import torch

from weft.comm.group import Group
from weft.config import make_recipe
from weft.strategies.single import Single
from weft.train.proof import Case, Outcome, Pair, cover, legal_pairs, prove
from weft.train.trainer import Place
from weft.train.workers.worker import run_worker


def prove_cover(group: Group, plain: int = 1, other: int = 1) -> list[Outcome]:
    """Prove a cover of all legal pairs, and last one that is not exact.

    Pairs without an exchange of their own are proved with one in `plain` of the models, those with one in
    `other`: at its exact point it meets the layers by the same calls.
    """
    away = Case(Pair("halo", {"exchange": {"name": "sampled", "p": 0.5}}), "gcn", "hub", "float64")
    cases = cover(legal_pairs(group.size))
    # Models are dealt to pairs by turns, so that each pair has some and each model meets pairs of all kinds.
    turns = {str(pair): turn for turn, pair in enumerate(legal_pairs(group.size))}

    def dealt(place: int, case: Case) -> bool:
        exchange = case.pair.options.get("exchange", {"name": "exact"})["name"]
        return (place + turns[str(case.pair)]) % (plain if exchange == "exact" else other) == 0

    return prove(group, [*(case for place, case in enumerate(cases) if dealt(place, case)), away])


def epochs(group: Group, path: str, model: str, options: dict[str, Any], count: int) -> list[float]:
    """Return the losses of epochs in float64 on a real graph, cut by METIS; alone, those of one process."""
    from weft.datasets import open_dataset
    from weft.graph.parts.shard import Shard, make_shards
    from weft.partitioners import partition
    from weft.strategies.halo.halo import Halo
    from weft.strategies.local import LocalGraph
    from weft.train.model import adapt, build_model, ready

    graph = adapt(open_dataset(path, normalise_features=True), model).to(dtype=torch.float64)
    held: Any = graph
    strategy: Any = Single(graph, seed=7)
    if group.size > 1:
        # Rank 0 alone partitions: METIS gives the same parts for a seed, but it need not run four times.
        parts = torch.zeros(graph.num_nodes, dtype=torch.int32)
        if group.rank == 0:
            parts = partition(graph, group.size, name="metis").parts.contiguous()
        group.broadcast(parts)
        held = LocalGraph(Shard.merge([make_shards(graph, parts)[group.rank]]))
        strategy = Halo(held, seed=7, group=group)
    built = build_model(held, model, options, seed=1)
    trained = ready(built, device=torch.device("cpu"), dtype=torch.float64)
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.01)
    losses = [strategy.epoch(trained, optimizer) for _ in range(count)]
    strategy.close()
    return losses


def run(group: Group, sections: dict[str, Any], out: str) -> None:
    """Train as a worker of a run that was prepared."""
    run_worker(make_recipe(sections), Place(out=out), group)


def told(outcomes: list[Outcome]) -> list[str]:
    """Return the cases that do not hold, in words."""
    return [f"{each.case}: {each.worst} {each.error:.1e}" for each in outcomes if not each.holds]
