"""What every data set must do, whatever it reads or generates."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
import torch

from weft.datasets import datasets, formats, open_dataset
from weft.graph.graph import Graph

# Small settings for the entries that generate; a new generator without a line here runs with its defaults.
SMALL: dict[str, dict[str, int]] = {
    "community": {"nodes": 300},
    "grid": {"rows": 3, "columns": 4},
    "ring": {"nodes": 7},
    "rmat": {"scale": 6, "edges": 200},
    "star": {"nodes": 7},
    "synthetic": {"nodes": 300},
    "typed": {"papers": 30, "authors": 10, "venues": 3},
}


def first_parameter(entry: Callable[..., Graph]) -> str:
    return next(iter(inspect.signature(entry).parameters))


GENERATORS = [name for name in datasets.names() if first_parameter(datasets[name]) not in ("path", "data")]
READERS = [name for name in datasets.names() if first_parameter(datasets[name]) == "path"]


@pytest.mark.parametrize("name", datasets.names())
def test_options_are_keywords_with_types_and_defaults(name: str) -> None:
    entry = datasets[name]
    hints = get_type_hints(entry)
    assert hints["return"] is Graph
    assert (entry.__doc__ or "").startswith("Return ")
    for option in list(inspect.signature(entry).parameters.values())[name in READERS :]:
        assert option.kind is inspect.Parameter.KEYWORD_ONLY, option.name
        assert option.default is not inspect.Parameter.empty, option.name
        assert option.name in hints, option.name


@pytest.mark.parametrize("name", GENERATORS)
def test_generator_gives_the_same_graph_twice(name: str) -> None:
    one, two = (open_dataset(name=name, **SMALL.get(name, {})) for _ in range(2))
    assert one.num_nodes > 0
    assert torch.equal(one.edge_index, two.edge_index)
    for kind, data in one.node_data.items():
        for key, value in data.items():
            assert torch.equal(value, two.node_data[kind][key]), (kind, key)


@pytest.mark.parametrize("name", READERS)
def test_reader_recognises_its_paths_and_leaves_others(name: str, tmp_path: Path) -> None:
    assert name in formats
    assert formats[name].__doc__
    assert not formats[name](tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    assert not formats[name](tmp_path / "notes.txt")
    assert not formats[name](tmp_path / "missing")
