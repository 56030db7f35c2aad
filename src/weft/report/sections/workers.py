"""What the workers sent each other and what it cost: the ledger, who sends to whom, who did what when."""

from __future__ import annotations

import math

from weft.report import words
from weft.report.columns import epoch_columns
from weft.report.markup import Bar, Section, bars, legend, panel, panels, small, table
from weft.report.pictures import Bar as Lane
from weft.report.pictures import heat_map
from weft.report.pictures import timeline as draw_timeline
from weft.report.plots import Line, Readout, epoch_axis, line_chart, linear_axis, log_axis, sample
from weft.report.read import Run
from weft.report.sections.generations import generations, moved_parts, part_costs
from weft.report.traffic import Flow, TrafficRecords

_MOST = 64  # ranks drawn one by one
_LANES = 16  # ranks in the timeline
LANES = {"forward": "t1", "backward": "t2", "optimizer": "t3", "evaluate": "t4"}
LANE_NAMES = {"optimizer": "optimiser", "evaluate": "evaluation"}
WAITING = "wait"
OTHERWISE = "t5"


def workers(run: Run) -> Section | None:
    """The ledger of a run with several workers."""
    traffic = run.traffic
    if traffic is None:
        return Section("Workers", note="the events tell of no traffic") if run.workers > 1 else None
    missing = sorted(set(range(run.workers)) - {record.rank for record in traffic.records})
    note = f"nothing was told by rank {', '.join(map(str, missing))}" if missing else ""
    body = panels(
        panel("What an epoch sends", _ledger(traffic), wide=True),
        _when(traffic),
        panel("Who sends to whom, in an epoch", _links(traffic)),
        panel("By rank", _ranks(traffic)),
        _by_epoch(traffic),
        _waiting(traffic),
        _staleness(traffic),
        _skipped(traffic),
        _drift(run),
        generations(run),
        moved_parts(run),
        part_costs(run),
    )
    return Section("Workers", body, lead=_lead(run, traffic), note=note)


def ledger_rows(traffic: TrafficRecords) -> list[list[str]]:
    """What an epoch sends by purpose, in words: purpose, bytes, messages, seconds waited and hidden."""
    rows = [[key.name, *_cells(flow)] for key, flow in traffic.flows.items()]
    return [*rows, ["together", *_cells(traffic.total)]]


LEDGER_HEAD = ["in an epoch", "bytes", "messages", "waited", "hidden"]


def _cells(flow: Flow) -> list[str]:
    nothing = not flow.exposed and not flow.hidden
    times = [words.NOTHING] * 2 if nothing else [words.seconds(flow.exposed), words.seconds(flow.hidden)]
    whole = flow.messages == round(flow.messages)
    messages = words.count(flow.messages) if whole else words.decimal(flow.messages)
    return [words.size(flow.bytes_sent), messages, *times]


def _lead(run: Run, traffic: TrafficRecords) -> str:
    total = traffic.total
    travel = total.exposed + total.hidden
    said = [
        f"{words.plural(len(traffic.ranks), 'worker')} send each other {words.size(total.bytes_sent)} "
        f"an epoch in {words.plural(total.messages, 'message')}"
    ]
    if traffic.evaluation.bytes_sent:
        said.append(f", {words.size(traffic.evaluation.bytes_sent)} of it for evaluation")
    said.append(f"; a worker waits {words.seconds(total.exposed)} for it")
    if travel:
        said.append(f", {words.percent(total.hidden / travel, 0)} of the transfers' time is hidden by work")
    return "".join(said) + "."


def _ledger(traffic: TrafficRecords) -> str:
    ledger = table(LEDGER_HEAD, ledger_rows(traffic))
    remark = (
        "Bytes and messages of all workers together; seconds of the mean worker: waited while it stood "
        "still, hidden while it worked. Exchanges are numbered in the order in which a step makes them."
    )
    if traffic.once:
        sent = ", ".join(f"{name} {words.size(num_bytes)}" for name, num_bytes in traffic.once.items())
        remark += f" Sent once, at the start: {sent}."
    return ledger + small(remark)


def _links(traffic: TrafficRecords) -> str:
    ranks, links = traffic.ranks, traffic.links
    if len(ranks) > _MOST:
        return small(f"{len(ranks)} ranks are too many to draw.")
    most = max(max(row) for row in links)
    return heat_map(
        links,
        names=[str(rank) for rank in ranks],
        show=words.size,
        tell=lambda row, column: (
            f"rank {ranks[row]} sends {words.size(links[row][column])} an epoch to rank {ranks[column]}"
        ),
        label=f"bytes an epoch between {len(ranks)} ranks; the most: {words.size(most)}",
        rows="from rank",
        columns="to rank",
    )


def _ranks(traffic: TrafficRecords) -> str:
    rows = []
    for index, rank in enumerate(traffic.ranks):
        flow = traffic.of_rank(rank)
        received = sum(row[index] for row in traffic.links)
        times = [words.seconds(flow.exposed), words.seconds(flow.hidden)]
        cells = [words.size(flow.bytes_sent), words.size(received), *times, words.size(traffic.memory(rank))]
        rows.append([f"rank {rank}", *cells])
    head = ["", "sent", "received", "waited", "hidden", "peak memory"]
    remark = small("Sent, received and seconds are those of an epoch.")
    return table(head, rows) + remark + _even(traffic)


def _even(traffic: TrafficRecords) -> str:
    """Waiting and memory of each rank as bars, which show at once who is waited for."""
    if not 1 < len(traffic.ranks) <= _LANES:
        return ""
    waits = [traffic.of_rank(rank).exposed for rank in traffic.ranks]
    sizes = [traffic.memory(rank) or 0.0 for rank in traffic.ranks]
    drawn = ""
    for name, tone, values, show in (
        ("Waited: the rank that waits least is the one that others wait for", "t2", waits, words.seconds),
        ("Peak memory", "t4", sizes, words.size),
    ):
        most = max(values)
        if most:
            lines = (Bar(f"rank {r}", v / most, show(v), tone) for r, v in zip(traffic.ranks, values))
            drawn += small(name) + bars(lines)
    return drawn


def _when(traffic: TrafficRecords) -> str:
    """The timeline of a few typical epochs."""
    epochs = traffic.window()
    ranks = traffic.ranks[:_LANES]
    if not epochs or not traffic.length(epochs):
        return ""
    ends, start = [], 0.0
    lanes: list[Lane] = []
    waits: list[Lane] = []
    for epoch in epochs:
        for record in traffic.records:
            if record.epoch == epoch and record.rank in ranks:
                row = ranks.index(record.rank)
                lanes += [(row, LANES.get(n, OTHERWISE), start + at, took) for n, at, took in record.phases]
                waits += [(row, WAITING, start + at, took) for _, at, took in record.waits]
        start += traffic.duration(epoch)
        ends.append(start)
    entries = _shares(traffic, epochs)
    text = f"What each rank did in {_span(epochs)}: {', '.join(f'{n} {v}' for _, n, v in entries)}."
    chart = draw_timeline(
        [*lanes, *waits],
        names=[f"rank {rank}" for rank in ranks],
        ends=ends,
        title="Timeline",
        text=text,
    )
    more = (
        f" The first {len(ranks)} of {len(traffic.ranks)} ranks." if len(ranks) < len(traffic.ranks) else ""
    )
    remark = small(
        f"Lines across divide the epochs; what is left empty is neither timed nor waited for.{more}"
    )
    return panel(f"Who did what when: {_span(epochs)}", chart + remark, wide=True, aside=legend(entries))


def _span(epochs: list[int]) -> str:
    first, last = words.count(epochs[0]), words.count(epochs[-1])
    return f"epoch {first}" if len(epochs) == 1 else f"epochs {first} – {last}"


def _shares(traffic: TrafficRecords, epochs: list[int]) -> list[tuple[str, str, str]]:
    """(tone, name, share) of each phase without the waits in it, and of waiting."""
    spent: dict[str, float] = {}
    waited = 0.0
    for record in traffic.records:
        if record.epoch not in epochs:
            continue
        for name, at, took in record.phases:
            inside = sum(w for _, start, w in record.waits if at <= start < at + took)
            spent[name] = spent.get(name, 0.0) + max(0.0, took - inside)
        waited += sum(took for _, _, took in record.waits)
    whole = sum(spent.values()) + waited or 1.0
    known = [name for name in LANES if name in spent] + [name for name in spent if name not in LANES]
    shares = [
        (LANES.get(n, OTHERWISE), LANE_NAMES.get(n, n), words.percent(spent[n] / whole, 0)) for n in known
    ]
    return [*shares, (WAITING, "waiting", words.percent(waited / whole, 0))]


def _by_epoch(traffic: TrafficRecords) -> str:
    """Bytes by epoch, where they are not the same in every epoch."""
    epochs = traffic.by_epoch()
    sums = [sum(flow.bytes_sent for flow in epochs[epoch].values()) for epoch in traffic.epochs[1:]]
    if len(sums) < 2 or max(sums) - min(sums) <= 0.01 * max(sums):
        return ""
    names = list(dict.fromkeys(key.purpose for key in traffic.flows))
    layers = []
    for index, name in enumerate(names):
        values = [epochs[epoch].get(name, Flow()).bytes_sent for epoch in traffic.epochs]
        if any(values):
            layers.append((name, f"t{index % 6 + 1}", values))
    chart = epoch_columns(
        traffic.epochs,
        layers,
        title="Bytes by epoch",
        text="Bytes sent in each epoch, all workers together;",
        unit=words.byte_unit,
        show=words.size,
    )
    return panel("Bytes by epoch", chart, aside=legend((tone, name, "") for name, tone, _ in layers))


def _waiting(traffic: TrafficRecords) -> str:
    epochs = traffic.by_epoch()
    ranks = len({record.rank for record in traffic.records})
    flows = [sum(epochs[epoch].values(), Flow()).over(1, ranks) for epoch in traffic.epochs]
    layers = [
        ("waited", "t2", [flow.exposed for flow in flows]),
        ("hidden", "t6", [flow.hidden for flow in flows]),
    ]
    if not any(any(values) for _, _, values in layers):
        return ""
    chart = epoch_columns(
        traffic.epochs,
        layers,
        title="Time of transfers by epoch",
        text="Seconds of transfers in each epoch, waited for and hidden, of the mean worker;",
    )
    return panel(
        "Time of transfers by epoch", chart, aside=legend((tone, name, "") for name, tone, _ in layers)
    )


def _staleness(traffic: TrafficRecords) -> str:
    rows = traffic.staleness
    if not rows or set(rows) == {0}:
        return ""
    most, whole = max(rows.values()) or 1.0, sum(rows.values()) or 1.0
    drawn = bars(
        Bar(
            "of this step" if age == 0 else f"{words.plural(age, 'step')} old",
            value / most,
            f"{words.percent(value / whole)}",
        )
        for age, value in rows.items()
    )
    return panel("Age of the rows that were used", drawn)


def _skipped(traffic: TrafficRecords) -> str:
    share = traffic.skipped
    if share is None:
        return ""
    drawn = bars(
        [
            Bar("skipped", share, words.percent(share), "t3"),
            Bar("made", 1 - share, words.percent(1 - share), "t1"),
        ]
    )
    return panel("Exchanges that could be skipped", drawn)


def _drift(run: Run) -> str:
    """How far what the exchange brought was from the truth, layer by layer."""
    layers = sorted({layer for epoch in run.epochs for layer in epoch.drift})
    lines = [
        Line(
            f"exchange {layer + 1}",
            f"t{index % 6 + 1}",
            [(float(e.number), e.drift[layer]) for e in run.epochs if layer in e.drift],
        )
        for index, layer in enumerate(layers)
    ]
    values = [value for line in lines for _, value in line.points if math.isfinite(value)]
    if not values:
        return ""
    low = min((value for value in values if value > 0), default=0.0)
    logarithmic = low > 0 and max(values) / low > 100
    y = log_axis(low, max(values)) if logarithmic else linear_axis(0.0, max(values))
    x = epoch_axis(run.epochs[0].number, run.epochs[-1].number)
    numbers = [run.epochs[i].number for i in sample(len(run.epochs))]
    rows = []
    for line in lines:
        at = dict(line.points)
        rows.append((line.name, line.tone, [words.decimal(at[n]) if n in at else "" for n in numbers]))
    readout = Readout(numbers, [f"epoch {words.count(n)}" for n in numbers], rows)
    entries = [(line.tone, line.name, words.decimal(line.points[-1][1])) for line in lines]
    text = (
        f"Relative error of what the exchange brought; last: {', '.join(f'{n} {v}' for _, n, v in entries)}."
    )
    chart = line_chart(lines, title="Drift", text=text, x=x, y=y, readout=readout)
    remark = small("True relative error of the exchanged rows, measured on a few random rows of each.")
    return panel("Drift", chart + remark, aside=legend(entries, lines=True))
