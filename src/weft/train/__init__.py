"""Training. Calling this package trains: `weft.train(graph, model, ...)`.

The function cannot simply be a name of `weft`: importing any module of this package would put the package in
its place. So the package itself is callable: it does what `weft.train.launch.train` does and then draws
the report.
"""

import functools
import inspect
import os
import sys
from types import ModuleType
from typing import Any

import weft
from weft.tasks.metrics import METRICS
from weft.train.launch import train
from weft.train.saved.checkpoint import load_weights, save_weights
from weft.train.saved.summary import Summary
from weft.train.settings import Settings

__all__ = ["METRICS", "Settings", "Summary", "load_weights", "save_weights", "train"]


class _Train(ModuleType):
    @functools.wraps(train)
    def __call__(self, *args: Any, **options: Any) -> Summary:
        summary = train(*args, **options)
        if summary.out is not None and os.environ.get("RANK", "0") == "0":
            weft.draw_report(summary.out)  # the front knows both; this package stands below reports
        return summary


__signature__ = inspect.signature(train)
sys.modules[__name__].__class__ = _Train
