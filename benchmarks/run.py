"""Run the benchmark cases: `python -m benchmarks.run [CASE ...]`; without names, all of them.

A case compares weft with its rivals on the same data in the same run. Before timing, the results of all
contenders are compared: a case that computes something else is an error, not a number. Each case writes
results/NAME.json, and all of them together make results/README.md.
"""

import argparse
import datetime
import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import cases
from benchmarks.measure import Case, load_average, peak_above_baseline, processor, time_by_turns

RESULTS = Path(__file__).parent / "results"


def all_cases() -> dict[str, Case]:
    """Return every case of the folder by name."""
    found: dict[str, Case] = {}
    for module in pkgutil.iter_modules(cases.__path__):
        for case in importlib.import_module(f"benchmarks.cases.{module.name}").CASES:
            found[case.name] = case
    return found


def run_case(case: Case, threads: int) -> dict[str, Any]:
    """Return the measured result of one case, ready to be written."""
    print(f"\n{case.title}")
    load_before = load_average()
    data = case.setup()
    steps = {name: build(data) for name, build in case.contenders.items()}
    results = {name: step() for name, step in steps.items()}  # also warms every contender up
    if case.check is not None:
        case.check(results)
    del results
    timings = time_by_turns(steps, case.repeat, case.seconds)
    result: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "note": case.note,
        "seconds": {name: timing.summary() for name, timing in timings.items()},
        "rounds": min(len(timing.seconds) for timing in timings.values()),
        "load_before": round(load_before, 2),
        "environment": environment(threads),
    }
    ours, rivals = _split(timings)
    result["ratio"] = min(timings[name].median for name in rivals) / timings[ours].median
    result["must"], result["goal"] = case.must, case.goal
    if case.against:
        result["against"] = case.against
        result["against_ratio"] = timings[case.against].median / timings[ours].median
    if case.memory:
        result |= memory_of(case, threads)
    for line in describe(result):
        print("  " + line)
    return result


def memory_of(case: Case, threads: int) -> dict[str, Any]:
    """Return the peak memory above the inputs of each contender, each in a process of its own."""
    memory = {}
    for name in case.contenders:
        command = [
            sys.executable,
            "-m",
            "benchmarks.run",
            case.name,
            "--memory-of",
            name,
            "--threads",
            str(threads),
        ]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800).stdout
        memory[name] = int(output.strip().splitlines()[-1])
    ours, rivals = _split(memory)
    return {
        "peak_bytes": memory,
        "memory_ratio": min(memory[name] for name in rivals) / max(1, memory[ours]),
        "memory_must": case.memory_must,
        "memory_goal": case.memory_goal,
    }


def environment(threads: int) -> dict[str, Any]:
    """Return what a reader needs to judge the numbers."""
    import torch_geometric

    from weft.kernels import native

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "processor": processor(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "native_core": native.available(),
    }


def describe(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one result for people."""
    for name, seconds in result["seconds"].items():
        memory = result.get("peak_bytes", {}).get(name)
        above = f"  peak {memory / 2**20:,.0f} MiB above inputs" if memory is not None else ""
        median, low, high = seconds["median"], seconds["min"], seconds["max"]
        yield f"{name:<34} {median * 1e3:10.2f} ms  ({low * 1e3:.2f} to {high * 1e3:.2f}){above}"
    if "against" in result:
        yield f"ratio to {result['against']}: {result['against_ratio']:.2f}x{_judged(result)}"
        yield f"ratio to the best rival: {result['ratio']:.2f}x"
    else:
        yield f"ratio to the best rival: {result['ratio']:.2f}x{_aims(result['must'], result['goal'])}"
    if "memory_ratio" in result:
        yield f"memory: 1/{result['memory_ratio']:.1f}{_aims(result['memory_must'], result['memory_goal'])}"


def write_page(folder: Path) -> None:
    """Write README.md from every result in the folder."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = [
        "# Measured results",
        "",
        "Made by `make bench`, or one case at a time by `python -m benchmarks.run CASE`.",
        "",
    ]
    lines += [
        "Rivals run in the same process on the same data, by turns; times are medians (smallest to largest).",
        "",
    ]
    lines += ["Memory is the peak resident size above the inputs, in a process of its own.", ""]
    for row in rows:
        lines += [f"## {row['title']}", "", *_page_body(row), ""]
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n")


def _page_body(row: dict[str, Any]) -> list[str]:
    where = row["environment"]
    head = f"`python -m benchmarks.run {row['case']}` · {where['date']} · {where['commit']} · "
    head += f"{where['processor']}"
    head += f", {where['threads']} threads · torch {where['torch']}, PyG {where['torch_geometric']}"
    if "other_rows" in row:
        other, own = row["other_rows"], ", ".join(row["measured_rows"])
        head += f" · this is of {own}; the other rows: {other['date']} · {other['commit']}"
    if "table" in row:
        return [head, "", *row["table"], *([f"\n{row['note']}"] if row.get("note") else [])]
    body = [head, "", "| | time | spread | peak memory |", "|---|---|---|---|"]
    for name, seconds in row["seconds"].items():
        peak = row.get("peak_bytes", {}).get(name)
        memory = f"{peak / 2**20:,.0f} MiB" if peak is not None else "–"
        spread = f"{seconds['min'] * 1e3:.2f}–{seconds['max'] * 1e3:.2f} ms"
        body.append(f"| {name} | {seconds['median'] * 1e3:.2f} ms | {spread} | {memory} |")
    if "against" in row:
        body += ["", f"**{row['against_ratio']:.2f}×** {row['against']}{_judged(row)}; "]
        body[-1] += f"{row['ratio']:.2f}× the best rival. Of {row['rounds']} rounds."
    else:
        body += ["", f"**{row['ratio']:.2f}×** the best rival{_aims(row['must'], row['goal'])}."]
    if "memory_ratio" in row:
        body.append(f"Memory **1/{row['memory_ratio']:.1f}**{_aims(row['memory_must'], row['memory_goal'])}.")
    return body + ([row["note"]] if row.get("note") else [])


def _keep_other_rows(result: dict[str, Any], path: Path) -> None:
    """Put the rows that were measured into the table of before, where there is one."""
    if not path.exists():
        return
    measured = {row.split(" | ")[0]: row for row in result["table"]}
    before = json.loads(path.read_text())
    result["measured_rows"] = [name.removeprefix("| ") for name in [*measured][2:]]
    result["other_rows"] = before.get("other_rows", before["environment"])
    result["table"] = [measured.pop(row.split(" | ")[0], row) for row in before["table"]] + [
        *measured.values()
    ]


def _split(measured: dict[str, Any]) -> tuple[str, list[str]]:
    ours, *rivals = measured
    return ours, rivals or [ours]


def _judged(row: dict[str, Any]) -> str:
    """Return what is required of the ratio to the rival that is named, and whether it was reached."""
    if row["must"] is None:
        return ""
    met = "met" if row["against_ratio"] >= row["must"] else "not met"
    return f" (required {row['must']:g}: {met})"


def _aims(must: float | None, goal: float | None) -> str:
    return f" (required {must:g}, aim {goal:g})" if must is not None and goal is not None else ""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument(
        "--only",
        metavar="ROW",
        default="",
        help="of paired_accuracy, plan_proof and quality_*, the rows that begin so; the others stay",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        choices=range(1, 100),
        help="of quality_*, with so many seeds (default: 3)",
    )
    parser.add_argument("--memory-of", metavar="CONTENDER", help=argparse.SUPPRESS)
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="small inputs, to see that cases run; results go to a folder apart",
    )
    options = parser.parse_args(arguments)
    if options.tiny:
        os.environ["WEFT_BENCH_TINY"] = "1"
        options.out = Path(tempfile.mkdtemp(prefix="weft-tiny-")) if options.out == RESULTS else options.out
    os.environ["WEFT_BENCH_ONLY"] = options.only
    os.environ["WEFT_BENCH_SEEDS"] = str(options.seeds or "")
    torch.set_num_threads(options.threads)
    known = all_cases()
    if options.list:
        print("\n".join(f"{case.name:<24} {case.title}" for case in known.values()))
        return 0
    unknown = [name for name in options.cases if name not in known]
    if unknown:
        print(f"no case {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    if options.memory_of:
        case = known[options.cases[0]]
        print(peak_above_baseline(case.contenders[options.memory_of](case.setup())))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.cases or known:
        case = known[name]
        result = case.run(options.threads) if hasattr(case, "run") else run_case(case, options.threads)
        for file, text in result.pop("files", {}).items():
            (options.out / file).write_text(text)
        if options.only:
            _keep_other_rows(result, options.out / f"{name}.json")
        (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        write_page(options.out)
    print(f"\nresults: {options.out / 'README.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
