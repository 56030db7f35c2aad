"""`weft selftest plan`: a few runs planned, made, and compared, on this machine."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.progress import clear_step, show_step

if TYPE_CHECKING:
    from weft.plan.proof.proving import ProofCase, Proved

NAME = "plan"
_GRAPH = {"name": "community", "nodes": 3000, "degree": 12.0, "features": 64}
_CUT = {"partitioner": "hash"}


def run() -> int:
    """Prove it, show a table, and return 0 only if every byte and message was foreseen."""
    from weft.cli.output import show_table
    from weft.cli.planning import machine_here
    from weft.plan.proof.proving import Proved, prove

    machine, proved = machine_here(), list[Proved]()
    with tempfile.TemporaryDirectory(prefix="weft-proof-") as name:
        for case in cases():
            show_step(case.name)
            proved.append(prove(case, machine, Path(name) / str(len(proved))))
    clear_step()
    show_table(f"{NAME}: {len(proved)} runs beside their plans", list(rows(proved)))
    for each in proved:
        for what, (size, number) in list(each.differences.items())[:5]:
            print(f"FAILED  {each.case.name}: {what}: {size} bytes and {number} messages off")
    wrong = sum(bool(each.differences) for each in proved)
    print("every byte and message was foreseen" if not wrong else f"{wrong} of {len(proved)} runs FAILED")
    return 1 if wrong else 0


def cases() -> Iterator["ProofCase"]:
    """Give the runs: one process, and two workers that exchange rows, sums and batches."""
    from weft.plan.proof.proving import ProofCase

    def case(name: str, workers: int, model: str, /, **strategy: Any) -> ProofCase:
        recipe = {"data": _GRAPH, "model": {"name": model, "hidden": 32}, "strategy": strategy}
        return ProofCase(name, recipe, workers)

    yield case("gcn, single", 1, "gcn", name="single")
    yield case("sage, halo, exact", 2, "sage", name="halo", **_CUT)
    yield case("gat, halo, quantised", 2, "gat", name="halo", exchange="quantised", **_CUT)
    yield case("sage, vertex_cut", 2, "sage", name="vertex_cut")
    yield case("sage, sampled", 2, "sage", name="sampled", batch_size=256, fanout=[5, 5], **_CUT)


def rows(proved: list["Proved"]) -> Iterator[tuple[str, ...]]:
    """Give the rows of the table, its head first."""
    from weft.sizes import shown

    yield "", "run", "workers", "bytes", "messages", "memory", "planned", "seconds", "planned"
    for each in proved:
        forecast, made = each.forecast, each.run
        yield (
            " FAILED" if each.differences else " ok",
            each.case.name,
            str(each.case.workers),
            f"{sum(forecast.bytes_of_epochs)} {each.bytes_off:+d}",
            f"{sum(forecast.messages_of_epochs)} {each.messages_off:+d}",
            shown(made.peak),
            f"{each.memory_error:+.1%}",
            f"{1e3 * made.epoch_seconds:.1f} ms",
            f"{each.seconds_error:+.0%}",
        )
