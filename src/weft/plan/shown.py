"""A plan for people: the recommended configuration, a table of all, and why the others lost."""

from collections.abc import Iterator

from weft.plan.forecast import Forecast
from weft.plan.planning import Plan
from weft.sizes import shown

_MOST = 30


def name_of(forecast: Forecast) -> str:
    """Return a configuration in a few words.

    >>> name_of.__name__
    'name_of'
    """
    rows = "×".join(str(forecast.options[key]) for key in ("rows", "columns") if key in forecast.options)
    more = rows or str(forecast.options.get("form", ""))
    words = [f"{forecast.strategy} {more}".strip(), *([forecast.exchange] if forecast.exchange else [])]
    return ", ".join(words)


def chosen(plan: Plan) -> str:
    """Return one line: what is recommended, and why."""
    best = plan.recommended
    if best is None:
        least = min(plan.configurations, key=lambda each: each.peak_memory_bytes, default=None)
        if least is None:
            return "nothing can be recommended: no configuration of this recipe is legal"
        return (
            f"nothing fits; the least is {name_of(least)} on {least.workers} with "
            f"{shown(least.peak_memory_bytes)} a worker, {shown(least.memory_limit_bytes)} may be taken"
        )
    kind = "exact" if best.exact else "approximate"
    workers = f"{best.workers} worker{'s' if best.workers > 1 else ''}"
    room = shown(best.memory_limit_bytes)
    return (
        f"{name_of(best)} on {workers}: the fastest {kind} one that fits in {room} a worker, "
        f"{_seconds(best.epoch_seconds)} an epoch, {shown(best.peak_memory_bytes)}, "
        f"{shown(best.bytes_per_epoch)} sent"
    )


def table(plan: Plan) -> Iterator[list[str]]:
    """Give the rows of the table, its head first."""
    yield ["configuration", "workers", "seconds", "memory", "bytes", "messages", "dollars", "value", "exact"]
    for each in plan.configurations[:_MOST]:
        dollars = "" if each.dollars_per_epoch is None else f"{each.dollars_per_epoch:.6f}"
        yield [
            name_of(each),
            str(each.workers),
            _seconds(each.epoch_seconds),
            shown(each.peak_memory_bytes),
            shown(each.bytes_per_epoch),
            str(each.messages_per_epoch),
            dollars,
            "" if each.value_per_epoch is None else f"{each.value_per_epoch:.4g}",
            "yes" if each.exact else accuracy_of(each),
        ]


def accuracy_of(each: Forecast) -> str:
    """Return what an approximation costs in accuracy, in a few words: the worst that was measured."""
    if not isinstance(each.accuracy_cost, list):
        return "no; not measured"
    worst = min(each.accuracy_cost, key=lambda cost: cost["points"])
    by = " ".join(f"{name} {value}" for name, value in worst["options"].items())
    points = f"{worst['points']:+.2f} ± {worst['error']:.2f} points"
    return f"no; {points}{f' at {by}' if by else ''}"


def sources(plan: Plan) -> Iterator[str]:
    """Give where the accuracy of approximations is from: the graphs and models it was measured on."""
    shown_ones = [each.accuracy_cost for each in plan.configurations[:_MOST]]
    costs = [cost for held in shown_ones if isinstance(held, list) for cost in held]
    told = dict.fromkeys(f"{cost['of']} ({cost['source']})" for cost in costs)
    if told:
        yield f"points against exact are the worst that was measured, others are in --json: {'; '.join(told)}"


def priced(plan: Plan) -> str:
    """Return one line on whose prices dollars and value are of; empty where there are none."""
    prices = plan.machine.prices
    if prices is None:
        return ""
    of = f"prices of {prices.date}, table {prices.sha256[:8]}"
    return f"dollars and value, 1 / (time x cost), are those of an epoch on {prices.machine!r} ({of})"


def lost(plan: Plan) -> Iterator[str]:
    """Give for each strategy that is not recommended why it is not."""
    best = plan.recommended
    seen = {best.strategy} if best is not None else set()
    for each in plan.configurations:
        if best is not None and each.strategy not in seen:
            seen.add(each.strategy)
            yield f"{name_of(each)} on {each.workers}: {_why(each, best)}"
    for refusal in plan.refused:
        key = refusal.strategy
        if key not in seen:
            seen.add(key)
            yield f"{refusal.strategy}: {refusal.why}"


def _why(each: Forecast, best: Forecast) -> str:
    if not each.fits:
        room = shown(each.memory_limit_bytes)
        return f"takes {shown(each.peak_memory_bytes)} a worker, {room} may be taken"
    if best.exact and not each.exact:
        return f"approximates, {_seconds(each.epoch_seconds)} an epoch"
    times = each.epoch_seconds / best.epoch_seconds if best.epoch_seconds else 1.0
    return f"{times:.1f} times as long an epoch, {shown(each.bytes_per_epoch)} sent"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.1f} ms"
