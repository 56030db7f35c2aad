"""weft directories: what `graph.save(path)` writes."""

from pathlib import Path

from weft.datasets import datasets, formats
from weft.graph.graph import Graph


@formats.add("weft")
def is_weft_directory(path: Path) -> bool:
    """a weft directory (manifest.json)."""
    return (path / "manifest.json").is_file()


@datasets.add("weft")
def directory(path: Path, *, verify: bool = True) -> Graph:
    """Return the graph that `graph.save` wrote; `verify` checks the checksum of every file."""
    return Graph.load(path, verify=verify)
