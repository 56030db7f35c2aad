"""Files of predictions and embeddings: by the user's ids, with the names of classes, and also of no node."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from infer_cases import (
    X,
    Y,
    forward,
    near,
    outputs,
    plain,
    stack,
)

from weft.errors import FormatError
from weft.graph import Graph
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring


def test_embeddings_are_what_the_last_layer_reads(tmp_path: Path) -> None:
    graph = plain()
    model = stack(graph, "sage")
    infer_model(model_scoring(model, graph), tmp_path / "out")
    model.eval()
    with torch.no_grad():
        last = model.run_layer(0, [graph.block()], graph.x)
    assert near(outputs(tmp_path / "out", "_embeddings/embeddings", "embedding"), last)


@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_a_file_of_nodes_without_any_is_refused(engine: str, tmp_path: Path) -> None:
    line = Graph.from_edges([[0, 1], [1, 2]], x=X[:3], y=[0, 1, 2], node_ids=["a", "b", "c"])
    (tmp_path / "ids.csv").write_text("id\n")
    scoring = model_scoring(stack(line, "sage"), line)
    with pytest.raises(FormatError, match="no row under its header"):
        infer_model(scoring, tmp_path / "out", nodes=tmp_path / "ids.csv", setting=Setting(engine))
    assert not (tmp_path / "out").exists()


def test_outputs_of_several_labels_and_names_of_classes(tmp_path: Path) -> None:
    graph = plain(y=torch.eye(3)[torch.tensor(Y)])
    model = stack(graph, "sage")
    infer_model(model_scoring(model, graph, names=["a", "b", "c"]), tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    scores = forward(model, graph)
    assert table.column_names == ["id", "prediction", "output"]
    for row, named in enumerate(table.column("prediction").to_pylist()):
        assert named == [word for word, score in zip("abc", scores[row].tolist()) if score > 0]
