"""Reading tables whole: a graph without nodes is none."""

from pathlib import Path

import pyarrow as pa
from tables import kinds_of, write_parquet


def test_an_empty_table_and_a_graph_without_nodes(tmp_path: Path) -> None:
    empty = write_parquet(tmp_path / "n.parquet", {"id": pa.array([], pa.int64())})
    none = write_parquet(
        tmp_path / "e.parquet", {"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}
    )
    assert kinds_of(f"nodes={empty}", f"edges={none}") == {"empty-graph"}
