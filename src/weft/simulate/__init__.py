"""Simulating. Calling this package simulates: `weft.simulate(recipe, workers=[1, 16, 256])`.

As with `weft.plan`, the package itself is callable: importing any module of it would put the package in the
place of a function of its name.
"""

import functools
import inspect
import sys
from types import ModuleType
from typing import Any

from weft.simulate.answers import SimulatedAnswers
from weft.simulate.asking import simulate

__all__ = ["SimulatedAnswers", "simulate"]


class _Simulate(ModuleType):
    @functools.wraps(simulate)
    def __call__(self, *args: Any, **options: Any) -> SimulatedAnswers:
        return simulate(*args, **options)


__signature__ = inspect.signature(simulate)
sys.modules[__name__].__class__ = _Simulate
