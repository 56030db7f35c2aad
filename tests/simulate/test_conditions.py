"""Machines and links of a cluster as a simulation has them."""

from pathlib import Path

import pytest
from plan_machine import machine

from weft.plan.cluster import read_cluster
from weft.simulate.conditions import Conditions
from weft.simulate.epochs import Unevenness


def test_without_a_cluster_each_worker_has_a_machine() -> None:
    wires = Conditions(bandwidth=5.0).wires(machine(), 7)
    assert (wires.machines, wires.racks, wires.bandwidth) == (7, 1, 5.0)
    assert Conditions().machine(machine(), 100).taking_turns([2.0] * 100) == [2.0] * 100


def test_a_cluster_says_who_shares_which_link(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        "[machine]\ncount = 8\ncores = 4\nmemory = '4GiB'\nracks = 4\n[within_rack]\nbandwidth = '10Gbit'\n"
        "[between_racks]\nbandwidth = '8Mbit'\nlatency = 0.5\n[cluster]\nworkers = 2\n"
    )
    wires = Conditions(read_cluster(file)).wires(machine(), 12)
    assert (wires.machines, wires.racks, wires.each, wires.rack) == (6, 3, 2, 2)
    assert (wires.bandwidth, wires.uplink, wires.far_latency) == (1.25e9, 1e6, 0.5)
    assert Conditions(read_cluster(file)).wires(machine(), 12, bandwidth=7.0).bandwidth == 7.0


def test_a_share_of_workers_is_slow_and_the_same_ones_again() -> None:
    factors = Unevenness(share=0.1, slowdown=3.0).factors(40)
    assert sorted(factors.tolist()) == [1.0] * 36 + [3.0] * 4
    assert factors.tolist() == Unevenness(share=0.1, slowdown=3.0).factors(40).tolist()
    assert factors.tolist() != Unevenness(share=0.1, slowdown=3.0, seed=1).factors(40).tolist()
    scattered = Unevenness(jitter=0.05).factors(4000)
    assert scattered.std() == pytest.approx(0.05, rel=0.1)
    assert scattered.mean() == pytest.approx(1.0, abs=0.01)
