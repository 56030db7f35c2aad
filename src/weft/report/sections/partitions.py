"""Learned rows in partitions: what was read and written, how long the disk was waited for, and the order."""

from __future__ import annotations

import statistics
from itertools import combinations

from weft.report import words
from weft.report.markup import Section, facts, panel, panels, small
from weft.report.pictures import heat_map
from weft.report.read import Epoch, Run

_MOST = 64
"""Partitions in a picture."""


def partitions(run: Run) -> Section | None:
    """What buckets took of the disk, and the order of the last epoch."""
    told = [epoch for epoch in run.epochs if epoch.buckets]
    if not told:
        return None

    def median(name: str) -> float:
        return statistics.median(epoch.buckets.get(name, 0.0) for epoch in told)

    lead = f"Training waited for the disk during {words.percent(median('disk_wait_share'))} of its time."
    taken = [
        ("swaps an epoch", words.count(median("swaps"))),
        ("bytes read an epoch", words.size(median("bytes_read"))),
        ("bytes written an epoch", words.size(median("bytes_written"))),
    ]
    if "relation_age_mean" in told[-1].buckets:  # workers took buckets as they came
        ages = f"{median('relation_age_mean'):.2g}, {words.count(median('relation_age_max'))} at most"
        taken += [
            ("waited for partitions of others", words.percent(median("lock_wait_share"))),
            ("age of relations, in visits", ages),
        ]
    note = small("A swap is a partition that was read after the buffer was filled; of the first worker.")
    return Section("Partitions", panels(panel("The disk", facts(taken) + note), _order(told[-1])), lead=lead)


def _order(epoch: Epoch) -> str:
    """A square of partitions, each pair as dark as it was late in the epoch."""
    count = 1 + max((one for visits in epoch.visits for each in visits for one in each), default=-1)
    if not 1 < count <= _MOST:
        return ""
    moment = [[0] * count for _ in range(count)]
    for number, visits in enumerate(epoch.visits, 1):
        for each in visits:
            for a, b in combinations(each, 2):  # a third is there all the time: it counts where it is met
                moment[a][b] = moment[b][a] = moment[a][b] or number
            for one in each:
                moment[one][one] = moment[one][one] or number
    picture = heat_map(
        [[float(value) for value in row] for row in moment],
        names=[str(index) for index in range(count)],
        show=words.count,
        tell=lambda row, column: f"partitions {row} and {column}: round {moment[row][column]}",
        label=f"The order in which {count} partitions met in epoch {epoch.number}; later pairs are darker",
        rows="partition of sources",
        columns="partition of targets",
    )
    return panel(f"Order of buckets, epoch {epoch.number}", picture + small("The darker, the later."))
