"""The examples in docstrings say what really comes out."""

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_there_are_examples() -> None:
    assert "weft.graph.graph" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_give_what_they_show(name: str) -> None:
    if name == "weft.interop.pyg.accelerate":
        pytest.importorskip("torch_geometric", reason="its example accelerates a PyG model")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0
    assert result.attempted > 0
