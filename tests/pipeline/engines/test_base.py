"""Sizes and names as every engine reads them."""

import pytest

from weft.errors import RecipeError
from weft.pipeline.engines.base import engines, memory_limit, name


def test_sizes_and_names() -> None:
    assert memory_limit("2GiB") == 2**31
    assert memory_limit(1000) == 1000
    assert memory_limit() > 2**27
    with pytest.raises(RecipeError, match="expected a size such as 512MiB"):
        memory_limit("a lot")
    assert name('a"b') == '"a""b"'
    assert "duckdb" in engines
