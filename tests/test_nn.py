"""Everything a model is made of is found by its name, and loaded when it is asked for."""

import subprocess
import sys

import pytest
from torch import nn

import weft
from weft.layers.base import layers


def test_every_name_is_there_and_no_other() -> None:
    assert [name for name in dir(weft.nn) if getattr(weft.nn, name) is None] == []
    assert sorted(weft.nn.__all__) == sorted(weft.nn._HOME)
    with pytest.raises(AttributeError, match="has no attribute 'GNC'"):
        weft.nn.GNC  # noqa: B018


def test_every_layer_of_the_registry_is_among_them() -> None:
    held = {getattr(weft.nn, name) for name in weft.nn.__all__}
    assert [name for name in layers.names() if layers[name] not in held] == []
    assert issubclass(weft.nn.SAGE, nn.Module)


def test_naming_the_module_loads_no_torch() -> None:
    code = "import sys, weft.nn; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
