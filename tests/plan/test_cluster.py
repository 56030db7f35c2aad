"""cluster.toml: machines, links and prices, and one line for what cannot be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plan_machine import machine

from weft.errors import RecipeError
from weft.plan.cluster import read_cluster
from weft.plan.wires import wires_of
from weft.train.saved.prices import read_prices

WHOLE = """
[machine]
count = 4
cores = 2
memory = "8GiB"
racks = 2
speed = 2.0
[cluster]
machine = "large"
workers = 2
[cluster.prices]
date = "2026-11-01"
large = 0.25
[within_rack]
bandwidth = "10Gbit"
latency = 2e-5
[between_racks]
bandwidth = "1Gbit"
"""

MACHINE = "[machine]\ncores = 2\nmemory = '1GiB'\n"


def cluster(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return path


def test_links_are_those_that_the_workers_use(tmp_path: Path) -> None:
    told, here = read_cluster(cluster(tmp_path, WHOLE)), replace(machine(), call=1e-3)
    wires = wires_of(told, here, 8)
    delays = wires.delays(np.array([0, 0, 0]), np.array([1, 2, 7])).tolist()
    assert delays == [here.latency, 2e-5, 1e-4]  # within a machine, a rack, between racks
    assert (wires.inside, wires.bandwidth, wires.uplink) == (2 * here.bandwidth, 1.25e9, 1.25e8)
    assert wires.call == here.call
    assert told.machine(here, 4).room(4) == 4 << 30
    assert told.machine(here, 4).dollars(3600, 3) == pytest.approx(0.5)
    assert told.machine(here, 1).rate("calls", 2) == here.rates["calls"] / 2
    assert told.machine(here, 1).shared_rates["calls"] == here.shared_rates["calls"] / 2
    with pytest.raises(RecipeError, match="take 5 machines, there are 4"):
        told.machine(here, 10)


def test_a_file_of_machines_is_a_table_of_prices_for_runs_too(tmp_path: Path) -> None:
    path = cluster(tmp_path, WHOLE)
    assert read_prices(path) == read_cluster(path).prices
    silent = read_cluster(cluster(tmp_path, "[machine]\ncores = 2\nmemory = '1GiB'"))
    assert (silent.workers, silent.prices) == (2, None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[machine]\ncores = 2", "machine.memory is missing"),
        ("[machines]\ncores = 2", r"unknown section \[machines\]"),
        ("[machine]\ncores = 0\nmemory = '1GiB'", "machine.cores"),
        ("[machine]\ncores = 2\nmemory = 'much'", "machine.memory: expected a size"),
        ("[machine]\ncores = 2\nmemory = '1GiB'\ncolour = 1", "machine.colour"),
        ("[machine]\ncores = 2\nmemory = '1GiB'\ngpus = 1", "machine.gpus"),
        ("[machine]\ncores = 2\nmemory = '1GiB'\ncount = 2", "within_rack"),
        ("[machine]\ncores = 2\nmemory = '1GiB'\n[within_rack]\nbandwidth = 'fast'", "within_rack.bandwidth"),
        ("[machine]\ncores = 2\nmemory = '1GiB'\nprice = 1", "machine.price"),
        (f"{MACHINE}[cluster]\nworkers = 0", "cluster.workers is 0"),
        (f"{MACHINE}[cluster]\ncolour = 1", "unknown key cluster.colour"),
        (f"{MACHINE}[cluster]\nmachine = 'large'", "cluster.workers is missing"),
        (f"{MACHINE}[cluster]\nmachine = 'large'\nworkers = 2", r"expected \[cluster\] with a machine"),
        ("[machine", "cluster.toml"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(RecipeError, match=line) as error:
        read_cluster(cluster(tmp_path, text))
    assert "\n" not in str(error.value)
