"""A folder of records is opened as the graph that they were drawn from."""

import shutil
from pathlib import Path

import pytest
from flatten_graphs import plain_graph

from weft.datasets.records import graph_of, is_records, records
from weft.errors import FormatError
from weft.pipeline.flatten import flatten


def test_records_lead_to_their_graph_or_say_that_it_is_gone(tmp_path: Path) -> None:
    graph = plain_graph()
    graph.save(tmp_path / "g")
    flatten(tmp_path / "g", tmp_path / "r", fanout=[2], targets="labelled")
    assert is_records(tmp_path / "r")
    assert not is_records(tmp_path / "g")
    assert graph_of(tmp_path / "r") == tmp_path / "g"
    assert records(tmp_path / "r").num_edges == graph.num_edges
    shutil.rmtree(tmp_path / "g")
    with pytest.raises(FormatError, match="which is not there; flatten the graph where it lies now"):
        records(tmp_path / "r")
