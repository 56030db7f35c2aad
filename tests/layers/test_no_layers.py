"""A model without layers makes no rows by itself."""

import pytest

import weft
from weft.errors import InputError
from weft.layers.no_layers import NO_LAYERS


def test_it_refuses_to_make_rows_and_is_found_by_its_name() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=20, classes=2)
    with pytest.raises(InputError, match="a model without layers makes no rows"):
        weft.nn.NoLayers()(graph.block(), graph.x)
    module, _, name = NO_LAYERS.partition(":")
    assert (module, name) == ("weft.layers.no_layers", "NoLayers")
