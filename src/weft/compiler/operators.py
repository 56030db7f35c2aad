"""torch's elementwise operators as steps of a program, with torch's gradients also at kinks and bounds."""

import math
from collections.abc import Callable
from typing import Any

from weft.compiler.programs.program import BINARY, UNARY, Builder

Rule = Callable[..., int]
"""Given the builder and the values of an operator's arguments, returns the value of its result."""


def _direct(op: str) -> Rule:
    return lambda made, *args: made.step(op, *args)


def _where_positive(made: Builder, x: int, above: int, below: int) -> int:
    return made.step("where", made.step("gt", x, made.constant(0.0)), above, below)


def _leaky_relu(made: Builder, x: int, slope: float = 0.01) -> int:
    return _where_positive(made, x, x, made.step("mul", x, made.constant(slope)))


def _elu(made: Builder, x: int, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> int:
    inner = x if input_scale == 1.0 else made.step("mul", x, made.constant(input_scale))
    # Where x is large the other branch is not to overflow: its gradient would be 0 · inf.
    low = made.step("expm1", _where_positive(made, x, made.constant(0.0), inner))
    low = low if alpha * scale == 1.0 else made.step("mul", low, made.constant(alpha * scale))
    return _where_positive(made, x, x if scale == 1.0 else made.step("mul", x, made.constant(scale)), low)


def _clamp(made: Builder, x: int, low: float | None = None, high: float | None = None) -> int:
    """torch passes the gradient at both bounds, where `maximum` would halve it."""
    if low is not None:
        floor = made.constant(low)
        x = made.step("where", made.step("lt", x, floor), floor, x)
    if high is not None:
        ceiling = made.constant(high)
        x = made.step("where", made.step("gt", x, ceiling), ceiling, x)
    return x


def _hardtanh(made: Builder, x: int, low: float = -1.0, high: float = 1.0) -> int:
    """torch's gradient is 0 at both bounds."""
    bottom, top = made.constant(low), made.constant(high)
    x = made.step("where", made.step("le", x, bottom), bottom, x)
    return made.step("where", made.step("ge", x, top), top, x)


def _softplus(made: Builder, x: int, beta: float = 1.0, threshold: float = 20.0) -> int:
    inner = x if beta == 1.0 else made.step("mul", x, made.constant(beta))
    large = made.step("gt", inner, made.constant(threshold))
    # As with elu; a minimum would halve the gradient at the threshold.
    soft = made.step("log1p", made.step("exp", made.step("where", large, made.constant(0.0), inner)))
    soft = soft if beta == 1.0 else made.step("div", soft, made.constant(beta))
    return made.step("where", large, x, soft)


def _silu(made: Builder, x: int) -> int:
    return made.step("mul", x, made.step("sigmoid", x))


def _gelu(made: Builder, x: int, approximate: str = "none") -> int:
    half = made.step("mul", x, made.constant(0.5))
    if approximate == "tanh":
        cube = made.step("mul", made.step("mul", x, x), x)
        inner = made.step("add", x, made.step("mul", cube, made.constant(0.044715)))
        bent = made.step("tanh", made.step("mul", inner, made.constant(math.sqrt(2 / math.pi))))
    else:
        bent = made.step("erf", made.step("mul", x, made.constant(math.sqrt(0.5))))
    return made.step("mul", half, made.step("add", bent, made.constant(1.0)))


def _pow(made: Builder, x: int, power: int) -> int:
    return made.step("pow", x, power)


def _log_to(base: float) -> Rule:
    return lambda made, x: made.step("mul", made.step("log", x), made.constant(1 / math.log(base)))


def _square(made: Builder, x: int) -> int:
    return made.step("mul", x, x)


def _prelu(made: Builder, x: int, slope: int) -> int:
    return _where_positive(made, x, x, made.step("mul", x, slope))


def _masked_fill(made: Builder, x: int, mask: int, number: int) -> int:
    return made.step("where", mask, number, x)


RULES: dict[str, Rule] = {
    name: _direct(name) for name in (*UNARY, *BINARY, "where") if name not in ("not", "same")
}
RULES |= {
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda made, x, high: _clamp(made, x, None, high),
    "hardtanh": _hardtanh,
    "softplus": _softplus,
    "silu": _silu,
    "gelu": _gelu,
    "square": _square,
    "rsqrt": lambda made, x: made.step("reciprocal", made.step("sqrt", x)),
    "log2": _log_to(2.0),
    "log10": _log_to(10.0),
    "exp2": lambda made, x: made.step("exp", made.step("mul", x, made.constant(math.log(2.0)))),
    "_prelu_kernel": _prelu,
    "masked_fill": _masked_fill,
    "logical_not": _direct("not"),
    "logical_and": _direct("mul"),
    "logical_or": _direct("maximum"),
}
"""By the name of torch's operator. Those that take numbers are told which in `NUMBERS`."""

NUMBERS: dict[str, tuple[Any, ...]] = dict.fromkeys(
    ("leaky_relu", "elu", "clamp", "clamp_min", "clamp_max", "hardtanh", "softplus"), (int, float, type(None))
) | {"gelu": (str,)}
"""Operators whose arguments after the first are plain numbers (or words)."""

LOGICAL = frozenset(["logical_not", "logical_and", "logical_or", "bitwise_not", "bitwise_and", "bitwise_or"])
