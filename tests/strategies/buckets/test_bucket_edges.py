"""Edges by bucket: each in the bucket of its ends' partitions, written once."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.graph.node_pairs import Pairs
from weft.strategies.buckets import bucket_edges
from weft.strategies.buckets.bucket_edges import EdgeFiles, write_edges
from weft.strategies.buckets.chunks import Candidates
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.room import room_of

TYPES = [("a", "to", "b"), ("b", "of", "b")]


def pairs() -> Pairs:
    generator = torch.Generator().manual_seed(1)
    first = [torch.randint(low, high, (60,), generator=generator) for low, high in ((0, 12), (12, 30))]
    second = [torch.randint(12, 30, (40,), generator=generator) for _ in range(2)]
    src, dst = (torch.cat([one, other]) for one, other in zip(first, second))
    return Pairs(src, dst, relation=torch.tensor([0] * 60 + [1] * 40))


def test_each_edge_is_in_the_bucket_of_its_ends(tmp_path: Path) -> None:
    division, given = Division(["a", "b"], [0, 12, 30], 3, seed=2), pairs()
    write_edges(tmp_path / "edges", given, division, TYPES)
    files, found = EdgeFiles(tmp_path / "edges", division), []
    for a in range(3):
        for b in range(3):
            held = files.read((a, b))
            assert files.count((a, b)) == len(held)
            assert [held.kinds[group] for group in held.group.tolist()] == [
                (0, 1) if kind == 0 else (1, 1) for kind in held.relation.tolist()
            ]
            src, dst = division.ids(a)[held.src.numpy()], division.ids(b)[held.dst.numpy()]
            found += [*zip(src.tolist(), held.relation.tolist(), dst.tolist())]
    assert sorted(found) == sorted(zip(given.src.tolist(), given.relation.tolist(), given.dst.tolist()))


def test_draws_by_degree_know_how_often_a_node_is_an_end(tmp_path: Path) -> None:
    division, given = Division(["a", "b"], [0, 12, 30], 3, seed=2), pairs()
    write_edges(tmp_path / "edges", given, division, TYPES)
    ends = EdgeFiles(tmp_path / "edges", division).ends((1, 2), Candidates(alpha=2.0))
    for end, partition, side in (("src", 1, given.src), ("dst", 2, given.dst)):
        weight = ends[end].weight  # type: ignore[index]
        degree = np.bincount(side.numpy(), minlength=30)[division.ids(partition)]
        assert np.diff(weight, prepend=0).tolist() == (degree.astype(float) ** 2).tolist()


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "edges"
    division = Division(["a", "b"], [0, 12, 30], 3, seed=2)
    write_edges(folder, pairs(), division, TYPES)
    before = (folder / "src.npy").stat().st_mtime_ns
    write_edges(folder, pairs(), division, TYPES)
    assert (folder / "src.npy").stat().st_mtime_ns == before
    write_edges(folder, pairs().take(torch.arange(50)), division, TYPES)
    assert EdgeFiles(folder, division).told["edges"] == 50


def many(count: int) -> tuple[Division, Pairs]:
    generator = torch.Generator().manual_seed(count)
    ends = torch.randint(500, (2, count), generator=generator)
    relation = torch.randint(3, (count,), generator=generator)
    return Division(["node"], [0, 500], 4, seed=1), Pairs(ends[0], ends[1], relation=relation)


def peak_of_writing(folder: Path, count: int) -> int:
    """Return the most that arrays take while edges are sorted, beside the pairs."""
    division, given = many(count)
    tracemalloc.start()
    write_edges(folder, given, division, [("node", "to", "node")] * 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_edges_sorted_piece_by_piece_are_those_sorted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    division, given = many(1000)
    for name, piece in (("once", 1000), ("pieces", 37)):
        monkeypatch.setattr(bucket_edges, "PIECE", piece)
        write_edges(tmp_path / name, given, division, [("node", "to", "node")] * 3)
    written = sorted(path.name for path in (tmp_path / "once").iterdir())
    assert {"src.npy", "degree_dst.npy", "offsets.npy"} <= {*written}
    for name in written:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes(), name


def test_memory_of_sorting_does_not_grow_with_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_edges, "PIECE", 4096)
    few, most = (peak_of_writing(tmp_path / str(count), count) for count in (10_000, 100_000))
    assert most < 1.2 * few
    division, _ = many(0)
    assert (
        most < room_of(division, 4, 100_000, buffer=4, arriving=1, batch=1, columns=1).memory["sorting edges"]
    )
