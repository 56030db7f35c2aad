"""What the numbers of a graph that came from tables stand for: an extra file beside its arrays."""

import json
from pathlib import Path
from typing import Any

from weft import format
from weft.errors import FormatError

REPORT = "ingest.json"
"""The extra file that holds classes, names of features and the schema."""


def read_report(path: str | Path) -> dict[str, Any]:
    """Return what the numbers of an ingested graph stand for: classes and feature names by node type.

    Empty where the graph did not come from tables.
    """
    try:
        return dict(json.loads(format.read_extra(path, REPORT)))
    except FormatError:
        return {}


def meaning_of(path: Path | None) -> dict[str, Any]:
    """Return what a run keeps of it for its graph, by which outputs are told; nothing for other data."""
    if path is None or not (path / format.MANIFEST).is_file():
        return {}
    report = read_report(path)
    return {name: report[name] for name in ("classes", "features") if report.get(name)}
