"""Hot keys are spread over tasks: the largest has at most five times the rows of the median one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark import GROUP

import weft
from weft.pipeline.engines.base import open_engine
from weft.pipeline.engines.duckdb import DuckDB
from weft.pipeline.flatten.folder import open_graph
from weft.pipeline.flatten.hops import HopPlan, Hops
from weft.pipeline.flatten.skew import Spread


def test_a_spread_join_has_the_rows_of_a_plain_one() -> None:
    import pyarrow as pa

    draw = np.random.default_rng(0)
    left = {"target": np.arange(900), "node": (draw.random(900) ** 4 * 20).astype(np.int64)}
    right = {"node": np.repeat(np.arange(20), 3), "src": np.arange(60)}
    rows = {}
    with DuckDB() as engine:
        engine.arrow("pairs", pa.table(left))
        engine.arrow("drawn", pa.table(right))
        for most in (0, 50):
            query = Spread(engine, most).query("pairs", 900, "drawn", {"node": "node"}, "l.target, r.src")
            rows[most] = sorted(engine.rows(query))
            assert ("salt" in query) == bool(most)
        hot = engine.rows("SELECT max(spread), count(*) FROM pairs_hot")[0]
    assert rows[0] == rows[50]
    assert hot[0] > 1
    assert 0 < hot[1] < 20


def star(leaves: int) -> weft.Graph:
    """Return leaves that point to one hub, which points back to each."""
    ends = np.stack([np.arange(1, leaves + 1), np.zeros(leaves, dtype=np.int64)])
    weight = np.random.default_rng(0).random(2 * leaves).astype(np.float32)
    return weft.Graph.from_edges(np.concatenate([ends, ends[::-1]], axis=1), edge_weight=weight)


def zipf(nodes: int, edges: int) -> weft.Graph:
    """Return a graph whose in-degrees fall as rank^-1.3: the first node has a quarter of the edges."""
    draw = np.random.default_rng(1)
    dst = (draw.zipf(1.3, edges) - 1) % nodes
    pairs = np.stack([draw.integers(0, nodes, edges), dst])
    return weft.Graph.from_edges(pairs, num_nodes=nodes, edge_weight=draw.random(edges).astype(np.float32))


def largest_share(session: Any, run: Any) -> float:
    """Return the rows of the largest task over those of the median one, in the worst stage of many rows."""
    store = session.sparkContext._jsc.sc().statusStore()
    before = {stage.stageId() for stage in _stages(store)}
    run()
    worst = 0.0
    for stage in _stages(store):
        if stage.stageId() in before or stage.status().toString() != "COMPLETE":
            continue
        tasks = _list(store.taskList(stage.stageId(), stage.attemptId(), 10_000))
        rows = [task.taskMetrics().get().shuffleReadMetrics().recordsRead() for task in tasks]
        if sum(rows) >= 100_000 and len(rows) > 4:
            worst = max(worst, max(rows) / max(float(np.median(rows)), 1.0))
    return worst


def _stages(store: Any) -> list[Any]:
    defaults = [getattr(store, f"stageList$default${place}")() for place in (2, 3, 4, 5)]
    return _list(store.stageList(None, *defaults))


def _list(values: Any) -> list[Any]:
    return [values.apply(place) for place in range(values.size())]


SETTINGS = {
    "adaptive.enabled": "false",
    "shuffle.partitions": "16",
    "autoBroadcastJoinThreshold": "-1",  # tables here are small enough to send to everyone
    "codegen.wholeStage": "true",  # which other tests have no use for
    "codegen.factoryMode": "FALLBACK",
}


@pytest.mark.slow
@GROUP
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("shape", ["star", "zipf"])
def test_the_largest_task_has_at_most_five_times_the_rows_of_the_median(shape: str, tmp_path: Path) -> None:
    graph = star(1_000_000) if shape == "star" else zipf(200_000, 2_000_000)
    graph.save(tmp_path / "g")
    folder = open_graph(tmp_path / "g")
    targets = np.arange(0, graph.num_nodes, 20 if shape == "zipf" else 8)
    share = {}
    for hub in (10_000, 0):
        with open_engine("spark", tmp_path / f"engine{hub}") as engine:
            for key, value in SETTINGS.items():
                engine.session.conf.set(f"spark.sql.{key}", value)  # type: ignore[attr-defined]
            plan = HopPlan((5, 3), weight="weight", hub=hub)

            def run(engine: Any = engine, plan: HopPlan = plan) -> None:
                rows = Hops(engine, folder, plan).rows(targets, np.arange(len(targets)), size=len(targets))
                engine.value(f"SELECT count(*) FROM ({rows})")

            share[hub] = largest_share(engine.session, run)  # type: ignore[attr-defined]
    assert share[10_000] <= 5 < share[0]
