"""Planning. Calling this package plans: `weft.plan(recipe, workers=[1, 2, 4])`.

As with `weft.train`, the package itself is callable: importing any module of it would put the package in the
place of a function of its name.
"""

import functools
import inspect
import sys
from types import ModuleType
from typing import Any

from weft.plan.front import plan
from weft.plan.planning import Plan

__all__ = ["Plan", "plan"]


class _Plan(ModuleType):
    @functools.wraps(plan)
    def __call__(self, *args: Any, **options: Any) -> Plan:
        return plan(*args, **options)


__signature__ = inspect.signature(plan)
sys.modules[__name__].__class__ = _Plan
