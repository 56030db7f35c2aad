"""The approximate exchanges at their recommended settings, as far as this weft has them."""

import os
from typing import Any

from weft.errors import WeftError
from weft.exchanges.base import check_exchange
from weft.strategies.base import strategies

HALO: dict[str, dict[str, Any]] = {
    "sampled(0.1)": {"name": "sampled", "p": 0.1},
    "stale": {"name": "stale"},
    "stale, smoothed": {"name": "stale", "smooth_features": 0.5, "smooth_gradients": 0.5},
    "skip(interval 4)": {"name": "skip", "interval": 4},
    "skip(age 3)": {"name": "skip", "age": 3},
    "skip(change 0.05)": {"name": "skip", "change": 0.05},
    "quantised(8)": {"name": "quantised", "bits": 8},
    "sampled(0.1) + 8 bits": {"name": "sampled", "p": 0.1, "bits": 8},
    "stale + 8 bits": {"name": "stale", "bits": 8},
    "sampled(auto)": {"name": "sampled", "p": "auto"},
    "quantised(auto)": {"name": "quantised", "bits": "auto"},
    "sampled(auto) + auto bits": {"name": "sampled", "p": "auto", "bits": "auto"},
}
VERTEX_CUT: dict[str, dict[str, Any]] = {
    "delayed(2)": {"name": "delayed", "r": 2},
    "delayed(5)": {"name": "delayed", "r": 5},
    "none": {"name": "none"},
}


def known(policies: dict[str, dict[str, Any]], strategy: str = "halo") -> dict[str, dict[str, Any]]:
    """Return those that the strategy allows here; the strategy itself may be missing."""
    if strategy not in strategies:
        return {}
    return {name: options for name, options in policies.items() if allowed(options, strategy)}


def chosen(policies: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return those that `--only` asks for."""
    only = os.environ.get("WEFT_BENCH_ONLY", "")
    return {name: options for name, options in policies.items() if name.startswith(only)}


def allowed(options: dict[str, Any], strategy: str = "halo") -> bool:
    """Return whether a strategy takes an exchange with such options."""
    try:
        check_exchange(options)
        strategies[strategy].check({"exchange": options})
    except WeftError:
        return False
    return True
