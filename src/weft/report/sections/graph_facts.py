"""What the graph looks like: sizes, degrees, targets, splits and types, as `Graph.summary()` counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft.report import words
from weft.report.markup import Bar, Section, bars, facts, fold, legend, panel, panels, small, strip, table
from weft.report.plots import Axis, Readout, bin_chart, log_axis
from weft.report.read import SPLITS, Run
from weft.report.sections.learning import NAMES, TONES

MAX_BARS = 16
Bins = list[tuple[float, float]]
DIRECTIONS = (("in_degree", "t1", "incoming"), ("out_degree", "t2", "outgoing"))


def graph(run: Run) -> Section | None:
    """Counts, features, degrees, what the task tells of targets, and split sizes."""
    held = run.graph
    if not held:
        return Section("Graph", note="the events hold no graph statistics")
    body = panels(
        panel("Sizes", facts(_sizes(held, run.facts))),
        _degrees(held),
        _balance(_table(run.facts, "balance")),
        _targets(run) or _splits(held),
        _types(held),
        _relations(held),
    )
    pairs = run.last("start").get("over") == "pairs"
    note = " Edges are those that carry messages; pairs that are targets alone are not among them."
    return Section("Graph", body, lead=_lead(held) + (note if pairs else ""))


def _lead(facts: Mapping[str, Any]) -> str:
    nodes, edges = words.number(facts.get("num_nodes")), words.number(facts.get("num_edges"))
    if nodes is None or edges is None:
        return ""
    mean = f", {words.decimal(edges / nodes)} a node" if nodes else ""
    return f"{words.plural(nodes, 'node')} and {words.plural(edges, 'edge')}{mean}."


def _sizes(facts: Mapping[str, Any], of_targets: Mapping[str, Any]) -> list[tuple[str, str]]:
    types, relations = _table(facts, "node_types"), _table(facts, "edge_types")
    degrees = [(f" ({name})", _table(facts, key)) for key, _, name in DIRECTIONS]
    if degrees[0][1] == degrees[1][1]:
        degrees = [("", degrees[0][1])]
    size = of_targets.get("size")
    told = [(str(size[0]), words.count(words.number(size[1])))] if words.listed(size, 2) else []
    rows = [
        ("Nodes", _count(facts, "num_nodes")),
        ("Edges", _count(facts, "num_edges")),
        ("Node types", words.count(len(types)) if len(types) > 1 else ""),
        ("Relations", words.count(len(relations)) if len(relations) > 1 else ""),
        *_features(facts),
        ("Edge data", ", ".join(str(name) for name in _table(facts, "edge_data"))),
        *told,
        ("Mean degree", words.decimal(words.number(degrees[0][1].get("mean")))),
        *((f"Median degree{name}", _count(degree, "median")) for name, degree in degrees),
        *((f"Largest degree{name}", _count(degree, "max")) for name, degree in degrees),
        ("Isolated nodes", _count(facts, "isolated_nodes")),
        ("Self loops", _count(facts, "self_loops")),
    ]
    return [(name, value) for name, value in rows if value not in ("", words.NOTHING)]


def _features(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Width and density of the features: of the one type, or of each."""
    types, rows = _table(facts, "features"), []
    for kind, data in types.items():
        if not isinstance(data, Mapping):
            continue
        of = f" of {kind}" if len(_table(facts, "node_types")) > 1 else ""
        columns, stored = words.number(data.get("columns")), words.number(data.get("stored_values"))
        rows.append((f"Features{of}", f"{words.count(columns)} {data.get('dtype', '')}".strip()))
        cells = (columns or 0.0) * (words.number(_table(facts, "node_types").get(kind)) or 0.0)
        if data.get("sparse") is True and stored is not None and cells:
            rows.append((f"Non-zero features{of}", words.density(stored / cells)))
    return rows if len(rows) <= 8 else []


def _degrees(facts: Mapping[str, Any]) -> str:
    """Nodes by degree in bins that double, both axes logarithmic."""
    series = [(tone, name, _bins(_table(facts, key).get("histogram"))) for key, tone, name in DIRECTIONS]
    drawn = [(tone, name, bins) for tone, name, bins in series if any(degree >= 1 for degree, _ in bins)]
    if not drawn:
        return ""
    if len(drawn) == 2 and drawn[0][2] == drawn[1][2]:
        drawn = [(drawn[0][0], "incoming and outgoing", drawn[0][2])]
    lows = sorted({degree for _, _, bins in drawn for degree, _ in bins if degree >= 1})
    y = log_axis(1, max(nodes for _, _, bins in drawn for _, nodes in bins), "nodes")
    x = _doubling_axis(lows)
    layers = [(tone, [(low, 2 * low, nodes) for low, nodes in bins if low >= 1]) for tone, _, bins in drawn]
    texts = [
        (name, tone, [words.plural(dict(bins).get(low, 0), "node") for low in lows])
        for tone, name, bins in drawn
    ]
    readout = Readout([low * math.sqrt(2) for low in lows], [_range(low) for low in lows], texts)
    text = f"Nodes by degree in bins that double, both axes logarithmic; the last bin is {_range(lows[-1])}."
    chart = bin_chart(layers, title="Degrees", text=text, x=x, y=y, readout=readout)
    rows = [
        [_range(low).removeprefix("degree "), *(texts_[i] for _, _, texts_ in texts)]
        for i, low in enumerate(lows)
    ]
    listing = fold("Degrees as a table", table(["degree", *(name for _, name, _ in drawn)], rows))
    without = [f"{words.count(dict(bins).get(0.0, 0.0))} without {name} edges" for _, name, bins in drawn]
    none = any(dict(bins).get(0.0) for _, _, bins in drawn)
    remark = small(f"Not drawn: {' and '.join(without)}.") if none else ""
    return panel(
        "Degrees", chart + remark + listing, aside=legend([(tone, name, "") for tone, name, _ in drawn])
    )


def _bins(histogram: Any) -> Bins:
    """(lowest degree, nodes) of each bin that holds any."""
    pairs = (
        [pair for pair in histogram if isinstance(pair, list) and len(pair) == 2]
        if isinstance(histogram, list)
        else []
    )
    read = [(words.number(low), words.number(nodes)) for low, nodes in pairs]
    return sorted(
        (a, b) for a, b in read if a is not None and b is not None and 0 <= a < 2**60 and 0 < b < 2**60
    )


def _doubling_axis(lows: list[float]) -> Axis:
    first, last = math.floor(math.log2(lows[0])), math.ceil(math.log2(lows[-1])) + 1
    stride = math.ceil((last - first) / 9)
    ticks = tuple((2.0**power, words.count(2.0**power)) for power in range(first, last + 1, stride))
    return Axis(2.0**first, 2.0**last, ticks, "degree", log=True)


def _range(low: float) -> str:
    return (
        f"degree {words.count(low)}" if low < 2 else f"degree {words.count(low)} – {words.count(2 * low - 1)}"
    )


def _balance(told: Mapping[str, Any]) -> str:
    """How many targets there are of each kind, the largest first."""
    counts, of = told.get("sizes"), told.get("of")
    one, many = map(str, of) if words.listed(of, 2) else ("kind", "kinds")
    values = [words.number(value) or 0.0 for value in counts] if isinstance(counts, list) else []
    pairs = sorted(((value, index) for index, value in enumerate(values)), key=lambda pair: -pair[0])
    total = sum(values)
    if not pairs or not 0 < total < math.inf:
        return ""
    shown = pairs[: MAX_BARS if len(pairs) <= MAX_BARS else MAX_BARS - 1]
    rows = [
        Bar(
            f"{one} {index}",
            value / pairs[0][0],
            f"{words.count(value)} · {words.percent(value / total)}",
            "t3",
        )
        for value, index in shown
    ]
    rest = pairs[len(shown) :]
    targets = words.plural(sum(value for value, _ in rest), "target")
    remark = (
        small(f"And {words.plural(len(rest), f'smaller {one}', f'smaller {many}')} with {targets}.")
        if rest
        else ""
    )
    return panel(str(told.get("title") or "Balance"), bars(rows) + remark)


def _splits(facts: Mapping[str, Any]) -> str:
    sizes = {split: words.number(_table(facts, "split").get(split)) or 0.0 for split in SPLITS}
    sizes = {split: size for split, size in sizes.items() if 0 < size < math.inf}
    if not sizes:
        return ""
    # Of a typed graph only one type has targets; shares of all nodes would say little.
    plain = len(_table(facts, "node_types")) <= 1
    nodes = max(words.number(facts.get("num_nodes")) or 0.0 if plain else 0.0, sum(sizes.values()))
    rows = [[NAMES[split], words.count(size), words.percent(size / nodes)] for split, size in sizes.items()]
    if sum(sizes.values()) < nodes:
        rest = nodes - sum(sizes.values())
        rows.append(["in no split", words.count(rest), words.percent(rest / nodes)])
    parts = [(TONES[split], size / nodes) for split, size in sizes.items()]
    return panel("Splits", strip(parts) + table(["split", "nodes", "share"], rows))


def _targets(run: Run) -> str:
    """The splits of a run whose targets are pairs."""
    start = run.last("start")
    if start.get("over") != "pairs":
        return ""
    counts = {split: words.number(_table(start, "targets").get(split)) or 0.0 for split in SPLITS}
    sizes = {split: size for split, size in counts.items() if 0 < size < math.inf}
    total = sum(sizes.values())
    rows = [[NAMES[split], words.count(size), words.percent(size / total)] for split, size in sizes.items()]
    parts = [(TONES[split], size / total) for split, size in sizes.items()]
    return panel("Splits", strip(parts) + table(["split", "pairs", "share"], rows)) if sizes else ""


def _types(facts: Mapping[str, Any]) -> str:
    types, features = _table(facts, "node_types"), _table(facts, "features")
    if len(types) < 2:
        return ""
    rows = [
        [str(kind), words.count(words.number(n)), _count(_table(features, kind), "columns")]
        for kind, n in types.items()
    ]
    return panel("Node types", table(["type", "nodes", "features"], rows))


def _relations(facts: Mapping[str, Any]) -> str:
    counts = [(words.number(value) or 0.0, str(name)) for name, value in _table(facts, "edge_types").items()]
    if len(counts) < 2:
        return ""
    counts.sort(key=lambda pair: -pair[0])
    shown = counts[: MAX_BARS if len(counts) <= MAX_BARS else MAX_BARS - 1]
    rows = [Bar(name, value / (counts[0][0] or 1.0), words.count(value), "t4") for value, name in shown]
    rest = counts[len(shown) :]
    edges = words.plural(sum(value for value, _ in rest), "edge")
    remark = small(f"And {words.plural(len(rest), 'smaller relation')} with {edges}.") if rest else ""
    return panel("Relations", bars(rows) + remark)


def _count(facts: Mapping[str, Any], name: str) -> str:
    return words.count(words.number(facts.get(name)))


def _table(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, Mapping) else {}
