"""An assignment has a fingerprint, and its quality says how even parts are."""

import json

import pytest
import torch

from weft.graph.parts.assignment import Assignment, Quality


def quality(**changes: object) -> Quality:
    counts = {"nodes": [3, 1], "edges": [2, 2], "train_nodes": [0, 0], "bytes": [10, 30]}
    rest = {"cut_edges": 1, "cut_share": 0.25, "halo_rows": 1, "halo_share": 0.2, "replication": 1.25}
    more = {"links": [[0, 1], [0, 0]], "hidden": 8, "layers": 2, "predicted": {"exact": 64}}
    return Quality(**{"cuts": "nodes", **counts, **rest, **more, **changes})  # type: ignore[arg-type]


def test_balance_is_the_largest_part_over_the_mean_part() -> None:
    found = quality().balance
    assert found == pytest.approx({"nodes": 1.5, "edges": 1.0, "train_nodes": 1.0, "bytes": 1.5})


def test_quality_survives_json_and_what_is_not_its_own_is_left_out() -> None:
    told = json.loads(json.dumps(quality(moved=4).to_dict()))
    assert told["balance"]["nodes"] == 1.5
    assert Quality.from_dict({**told, "later": 1}) == quality(moved=4)
    del told["moved"]  # of a file from before
    assert Quality.from_dict(told).moved == 0


def test_the_fingerprint_is_of_who_holds_what_and_of_nothing_else() -> None:
    parts = torch.tensor([0, 1, 1, 0], dtype=torch.int32)
    one = Assignment(parts, 2)
    assert one.sha256 == Assignment(parts.long(), 2, name="hash", options={"seed": 3}).sha256
    others = [
        Assignment(1 - parts, 2),
        Assignment(parts, 3),
        Assignment(parts, 2, cuts="edges"),
        Assignment(parts, 2, cuts="grid", grid=(1, 2)),
        Assignment(parts, 2, cuts="grid", grid=(2, 1)),
    ]
    assert len({one.sha256, *(each.sha256 for each in others)}) == 6
