"""Folders of `weft flatten`: opened as the graph that the records are of."""

from pathlib import Path

from weft import format
from weft.datasets import datasets, formats
from weft.errors import FormatError
from weft.graph.graph import Graph


@formats.add("records")
def is_records(path: Path) -> bool:
    """a folder of records (records.json)."""
    return (path / format.RECORDS).is_file()


@datasets.add("records")
def records(path: Path, *, verify: bool = True) -> Graph:
    """Return the graph that the records of a folder were drawn from; the strategy reads the records."""
    graph = graph_of(path)
    if not graph.is_dir():
        raise FormatError(
            f"{path}: its records are of {graph}, which is not there; flatten the graph where it lies now, "
            "or train without it from records that hold all of it: strategy.evaluate = 'records'"
        )
    return Graph.load(graph, verify=verify)


def graph_of(path: Path) -> Path:
    """Return the folder of the graph that records were drawn from."""
    return Path(str(format.read_manifest(path, format.RECORDS)["meta"].get("graph", "")))
