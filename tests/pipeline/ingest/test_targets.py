"""Labels and splits of nodes."""

from pathlib import Path

from tables import (
    edge_file,
    graph_of,
    write_parquet,
)


def test_masks_of_booleans_and_lists_of_labels(tmp_path: Path) -> None:
    columns = {
        "id": [1, 2],
        "y": [[1, 0, 1], [0, 0, 0]],
        "train_mask": [True, False],
        "val_mask": [False, True],
    }
    nodes = write_parquet(tmp_path / "n.parquet", columns)
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edge_file(tmp_path, 1, 2)}")
    assert graph.y.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert graph.multilabel
    assert graph.val_mask.tolist() == [False, True]
