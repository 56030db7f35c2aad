"""Numbers and values as people read them: 1,234 · 12.3 ms · 1.2 GiB · 81.4 % · TOML.

Everything here returns plain text, not HTML; whatever goes into the page is escaped by its caller.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

NOTHING = "–"
_LABELS = {
    "f1": "F1",
    "micro_f1": "Micro F1",
    "macro_f1": "Macro F1",
    "roc_auc": "ROC-AUC",
    "ap": "Average precision",
    "mrr": "MRR",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "negatives": "Negatives a pair",
}
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: Any) -> float | None:
    """Return `value` as a float, or None where it is no number (NaN and infinity are numbers)."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and value.lower() not in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def count(value: float | None) -> str:
    """Whole numbers with thousands separated: 1,234."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{round(value):,}"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number to `digits` significant digits, without an exponent where one can do without."""
    if value is None:
        return NOTHING
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    # Of the rounded number: 0.9999 to three digits is 1.00, not 1.000.
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if not -5 < size < 12:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    return f"{value:,.{max(0, digits - 1 - size)}f}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share of one as per cent: 81.4 %."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{100 * value:.{digits}f} %"


def density(value: float | None) -> str:
    """The share of non-zeros as per cent, with enough digits to tell small ones from none."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{decimal(100 * value, 2 if value < 0.1 else 3)} %"


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it: 870 µs · 12.3 ms · 4.56 s · 3 min 20 s · 2 h 05 min."""
    if value is None or not math.isfinite(value) or value < 0:
        return NOTHING
    if value == 0:
        return "0 s"
    if value < 0.9995e-3:
        return f"{decimal(1e6 * value)} µs"
    if value < 0.9995:
        return f"{decimal(1e3 * value)} ms"
    if value < 99.95:
        return f"{decimal(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def time_unit(largest: float) -> tuple[float, str]:
    """The unit for an axis of durations up to `largest` seconds, as (seconds in it, its name)."""
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if largest >= size:
            return size, name
    return 1e-6, "µs"


def byte_unit(largest: float) -> tuple[float, str]:
    """The unit for an axis of sizes up to `largest` bytes, as (bytes in it, its name)."""
    step = 0
    while largest >= 1024.0 ** (step + 1) and step + 1 < len(_BYTES):
        step += 1
    return 1024.0**step, _BYTES[step]


def size(value: float | None) -> str:
    """A number of bytes in binary units: 1.21 GiB."""
    if value is None or not math.isfinite(value) or value < 0:
        return NOTHING
    unit, name = byte_unit(value)
    # Four digits of MiB read better than 1,020 rounded to three.
    return f"{decimal(value / unit, 3 if value / unit < 999.5 else 4)} {name}"


def listed(value: Any, count: int) -> TypeGuard[list[Any]]:
    """Return whether a value of a file is a list of so many."""
    return isinstance(value, list) and len(value) == count


def plural(value: float, one: str, many: str = "") -> str:
    """A count with its noun: 1 epoch · 2,000 epochs."""
    text = count(value)
    return f"{text} {one if text == '1' else many or one + 's'}"


def label(name: str) -> str:
    """A key as a heading for people: `macro_f1` gives 'Macro F1', `roc_auc` gives 'ROC-AUC'."""
    if name in _LABELS:
        return _LABELS[name]
    if name.startswith("ogb_"):
        return f"OGB {label(name.removeprefix('ogb_'))}"
    text = name.replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def inline(name: str) -> str:
    """A key within a sentence: 'accuracy', 'macro F1', 'ROC-AUC'."""
    text = label(name)
    return text if text[1:2].isupper() or text[1:2].isdigit() else text[:1].lower() + text[1:]


def toml(value: Any) -> str:
    """One value as TOML writes it; None, which TOML lacks, as `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {toml(held)}" for key, held in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(held) for held in value)}]"
    return str(value)
