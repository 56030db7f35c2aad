"""Typed graphs that the tests of METIS share."""

import torch

from weft.graph import Graph


def typed_graph(seed: int) -> Graph:
    """Three types of communities; authors write papers of theirs, of which few are trained on."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(most: int, count: int) -> torch.Tensor:
        return (torch.rand(count, generator=generator) ** 2 * most).long()

    author, paper = drawn(300, 3_000), drawn(900, 3_000)
    near = (author * 3 + drawn(20, 3_000)).clamp(max=899)
    row = torch.arange(300)  # a set is of the same communities
    sets = {"train_mask": row < 60, "val_mask": (row >= 60) & (row < 90), "test_mask": row >= 200}
    return Graph.from_types(
        {
            "author": {"num_nodes": 300, "y": [0] * 300, **sets},
            "paper": {"num_nodes": 900},
            "venue": {"num_nodes": 12},
        },
        {
            ("author", "writes", "paper"): torch.stack([author, near]),
            ("paper", "by", "author"): torch.stack([near, author]),
            ("venue", "shows", "paper"): torch.stack([paper // 75, paper]),
        },
    )
