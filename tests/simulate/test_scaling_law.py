"""How a cut grows: chance by hand, and lines through what was measured."""

import numpy as np
import pytest
import torch

import weft
from weft.partitioners.quality import measure
from weft.simulate.scaling_law import ChanceLine, CutFound, OutDegrees, ScalingLaw, measured_law


def ring(count: int) -> weft.Graph:
    nodes = torch.arange(count)
    ends = torch.stack([nodes, (nodes + 1) % count])
    return weft.Graph.from_edges(torch.cat([ends, ends.flip(0)], 1), x=torch.ones(count, 1))


def test_chance_by_hand() -> None:
    # Two edges out of each of 10 nodes: into 2 parts, a node is in the other's halo with 1 - 1/4.
    assert OutDegrees.of(ring(10)).halo_rows(2) == pytest.approx(10 * 0.75)
    assert OutDegrees(np.array([0, 1]), np.array([5, 8])).halo_rows(4) == pytest.approx(8 * 3 / 4)


def test_a_partition_at_random_has_as_many_halo_rows_as_chance_says() -> None:
    graph = weft.datasets.datasets["community"](nodes=3000, degree=8.0, features=2)
    parts = torch.from_numpy(np.random.default_rng(0).integers(0, 8, graph.num_nodes)).int()
    quality = measure(graph, parts, 8)
    assert CutFound.of(quality).halo_rows == pytest.approx(OutDegrees.of(graph).halo_rows(8), rel=0.02)


FAR = 1e9


def line(shares: list[float], chance: float = FAR) -> ChanceLine:
    parts = tuple(2 ** (place + 1) for place in range(len(shares)))
    return ChanceLine(parts, tuple(shares), (chance,) * len(shares))


def test_a_power_is_followed_and_chance_is_its_end() -> None:
    found = line([3.0 * count**0.5 for count in (2, 4, 8, 16)])
    assert found.at(64, FAR).value == pytest.approx(24.0)
    assert found.at(64, FAR).low == pytest.approx(found.at(64, FAR).high)
    assert found.at(64, 24.0).value == pytest.approx(12.0)  # as far from the one as from the other
    assert found.at(10**6, 5.0).value == pytest.approx(5.0, rel=0.01)
    assert found.at(8, FAR).value == 3.0 * 8**0.5


def test_doubt_grows_with_the_distance_and_with_the_scatter() -> None:
    def width(scatter: float, parts: int) -> float:
        counts = enumerate((2, 4, 8, 16))
        found = line([count**0.5 * (1 + scatter * (-1) ** place) for place, count in counts]).at(parts, FAR)
        assert found.low < found.value < found.high
        return found.high / found.low

    assert width(0.05, 64) < width(0.05, 512)
    assert width(0.05, 64) < width(0.1, 64)


def test_the_law_of_a_ring_is_two_rows_a_part() -> None:
    law = measured_law(ring(400), "range", parts=(2, 4, 8, 16))
    assert [each.halo_rows for each in law.found] == [4, 8, 16, 32]
    assert law.halo_rows(64).value == pytest.approx(128, rel=0.1)
    assert law.peers(64) <= 3
    assert law.cut_share(16) == pytest.approx(32 / 800)
    assert law.to_dict([64])["expected"][0]["parts"] == 64


def test_dealing_out_is_extrapolated_by_chance() -> None:
    graph = weft.datasets.datasets["community"](nodes=2000, degree=8.0, features=2)
    law = measured_law(graph, "hash", parts=(2, 4, 8))
    parts = weft.partitioners.partition(graph, 64, name="hash")
    assert parts.quality is not None
    expected = law.halo_rows(64)
    assert expected.low * 0.98 <= parts.quality.halo_rows <= expected.high * 1.02
    assert expected.value == pytest.approx(parts.quality.halo_rows, rel=0.05)


def test_a_law_of_two_points_has_no_upper_bound_but_chance() -> None:
    law = ScalingLaw("x", OutDegrees.of(ring(100)), tuple(CutFound(n, 2 * n, 0.1, 1.0) for n in (2, 4)))
    assert law.halo_rows(16).high == pytest.approx(law.chance.halo_rows(16))
