"""Work and traffic by law, held to what was counted."""

from dataclasses import replace

import numpy as np
import pytest

from weft.errors import InputError
from weft.plan.rehearse.work import CountedWork
from weft.simulate.counted import CountedRun, HeldPart, Volumes
from weft.simulate.scaling_law import CutFound, OutDegrees, ScalingLaw
from weft.simulate.workload import BUNDLES, Workload, nonnegative

NODES, EDGES = 8000, 80_000
HALO = ("halo", 0, "forward")
SUMS = ("gradient", -1, "backward")


def law() -> ScalingLaw:
    even = {"nodes": [1.0], "edges": [1.0], "halo": [1.0]}
    cuts = tuple(CutFound(n, 100 * n, 0.02 * n**0.5, n - 1.0, even) for n in (2, 4, 8))
    return ScalingLaw("metis", OutDegrees(np.array([10]), np.array([NODES])), cuts)


def run(workers: int) -> CountedRun:
    """Return a run whose work is 3 products a node and 2 a halo row, and whose rows have 32 bytes."""
    part = HeldPart(NODES / workers, EDGES / workers, 100.0 if workers > 1 else 0.0)
    work = {"forward": CountedWork(calls=50, products=round(3 * part.nodes + 2 * part.halo))}
    own = np.arange(workers)
    pairs = np.array([(a, b) for a in own for b in own if a != b])
    traffic = {}
    if workers > 1:
        each = np.full(len(pairs), 3200.0 / (workers - 1))
        ring = np.full(workers, 2 * (workers - 1) * 1000.0 / workers)
        traffic = {
            HALO: Volumes(pairs[:, 0], pairs[:, 1], each, np.ones(len(pairs))),
            SUMS: Volumes(own, (own + 1) % workers, ring, np.full(workers, 2.0 * (workers - 1))),
        }
    return CountedRun(workers, 1, (part,) * workers, (work,) * workers, traffic, ("halo",))


def workload() -> Workload:
    return Workload({count: run(count) for count in (1, 2, 4)}, law(), NODES, EDGES)


def test_what_was_counted_is_taken_as_it_is() -> None:
    assert workload().at(4) is not None
    held = workload()
    assert held.at(4) is held.runs[4]


def test_traffic_follows_what_it_followed_where_it_was_counted() -> None:
    laws = workload().laws()
    assert (laws[HALO].driver, laws[HALO].joint) == ("halo", False)
    assert laws[HALO].each == pytest.approx(32.0)
    assert (laws[SUMS].driver, laws[SUMS].each, laws[SUMS].joint) == ("others", 2000.0, True)
    assert laws[HALO].misfit < 1e-9


def test_the_law_gives_what_a_count_would() -> None:
    drawn, known = workload().at(8), run(8)
    assert drawn.halo_rows == pytest.approx(known.halo_rows)
    for label in (HALO, SUMS):
        assert drawn.traffic[label].total == pytest.approx(known.traffic[label].total)
    for mine, theirs in zip(drawn.work, known.work):
        assert mine["forward"].products == pytest.approx(theirs["forward"].products, rel=1e-3)
        assert mine["forward"].calls == pytest.approx(50, rel=1e-3)
    assert drawn.traffic[SUMS].reductions(8) == 1
    assert float(drawn.traffic[HALO].messages.sum()) == 8 * 7


def test_many_peers_are_bundled_and_no_byte_or_message_is_lost() -> None:
    drawn = workload().at(500)
    held = drawn.traffic[HALO]
    assert len(held.src) == 500 * min(BUNDLES, law().peers(500))
    assert held.total == pytest.approx(32 * law().halo_rows(500).value)
    assert float(held.messages.sum()) == pytest.approx(500 * law().peers(500))
    assert (held.src != held.dst).all()
    sent = np.bincount(held.src, weights=held.size, minlength=500)
    assert sent == pytest.approx(sent.mean())


def test_a_graph_of_twice_the_size_has_twice_the_work_and_rows() -> None:
    once, twice = workload().at(64), workload().at(64, scale=2.0)
    assert twice.halo_rows == pytest.approx(2 * once.halo_rows)
    assert twice.traffic[HALO].total == pytest.approx(2 * once.traffic[HALO].total)
    assert twice.traffic[SUMS].total == pytest.approx(once.traffic[SUMS].total)
    assert twice.steps == 2


def test_what_has_no_law_is_told_only_where_it_was_counted() -> None:
    with pytest.raises(InputError, match="on 1, 2, 4"):
        replace(workload(), law=None).at(8)


def test_weights_are_never_below_zero() -> None:
    design = np.array([[1.0, 5.0], [2.0, 3.0], [3.0, 1.0]])
    found = nonnegative(design, np.array([10.0, 6.0, 2.0]))
    assert found == pytest.approx([0.0, 2.0], abs=1e-3)
