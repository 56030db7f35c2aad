"""The page of a partition: what it costs, in numbers and as a map."""

from weft.graph.parts.assignment import Quality
from weft.report.partition_page import quality_rows, render_partition


def quality(**changes: object) -> Quality:
    counts = {"nodes": [30, 10], "edges": [20, 20], "train_nodes": [0, 0], "bytes": [1024, 3072]}
    rest = {"cut_edges": 1200, "cut_share": 0.25, "halo_rows": 7, "halo_share": 0.2, "replication": 1.25}
    more = {"links": [[0, 5], [2, 0]], "hidden": 8, "layers": 2, "predicted": {"exact": 2048, "none": 0}}
    return Quality(**{"cuts": "nodes", **counts, **rest, **more, **changes})  # type: ignore[arg-type]


def test_numbers_are_named_for_what_was_assigned() -> None:
    by_nodes, by_edges = dict(quality_rows(quality())), dict(quality_rows(quality(cuts="edges", moved=3)))
    assert by_nodes["cut edges"].startswith("1,200 (25")
    assert by_nodes["balance of nodes"] == "1.500 (largest part 30)"
    assert by_nodes["balance of train nodes"] == "none"
    assert by_nodes["bytes an epoch, exact"].endswith("(2 layers of 8)")
    assert "moved" not in by_nodes
    assert "cut edges" not in by_edges
    assert by_edges["replicas beside roots"].startswith("7 (20")
    assert by_edges["moved"] == "3 nodes, to fill empty parts"


def test_the_page_tells_who_takes_from_whom_and_loads_nothing() -> None:
    page = render_partition("a <b>", quality())
    assert "part 0 takes 5 halo rows from part 1" in page
    assert "3.00 KiB" in page, "bytes are shown as such"
    assert "a &lt;b&gt;" in page
    assert "default-src 'none'" in page
    assert "Train nodes: largest" not in page, "nothing is drawn of no nodes"
    assert "part 1 takes 2 replicas from part 0" in render_partition("t", quality(cuts="edges"))


def test_very_many_parts_are_told_and_not_drawn() -> None:
    many = quality(links=[[0] * 400 for _ in range(400)], nodes=[1] * 400, edges=[1] * 400, bytes=[1] * 400)
    assert "400 parts are too many to draw" in render_partition("t", many)
