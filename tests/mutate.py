"""Mutation testing, run by hand: changes one place of the code at a time and names what no fast test sees.

    python tests/mutate.py src/weft/exchanges --seconds 600 --tests tests/exchanges tests/strategies

The tests run once to learn which of them enter which function; a mutant then runs those alone, the quickest
first. It is loaded in place of its module, also by the processes that tests start: no file of the tree is
written. Many that live are equal to the code, or only slower: each is to be judged.
"""

import argparse
import ast
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOOK = ROOT / "tests" / "support" / "mutation"  # whose sitecustomize every Python process loads
PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--timeout", "90"]
SECONDS = 30.0  # of tests for a mutant, as long as they took without it
SWAPS: dict[type, Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
LEFT_ALONE = ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments


def main() -> None:
    """Print a line for each mutant that is not killed, then how many there were."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("code", type=Path, help="what to change: a folder or a file")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="what may see it")
    parser.add_argument("--seconds", type=float, default=600, help="when to begin no other mutant")
    parser.add_argument("--seed", type=int, default=0, help="of the order of mutants")
    parser.add_argument("--notes", type=Path, help="a folder: which tests enter what, kept for the next time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        notes = (asked.notes or Path(made)).resolve()
        notes.mkdir(parents=True, exist_ok=True)
        if not (notes / "times").exists():
            run([*asked.tests, "-p", "sitecustomize"], None, MUTATE_NOTES=str(notes))
        tests, stop, fates = quickest(notes), time.time() + asked.seconds, Counter[str]()
        files = sorted(asked.code.resolve().rglob("*.py")) or [asked.code.resolve()]
        places = [(file, at) for file in files for at in range(len(sites(ast.parse(file.read_text()))))]
        for file, at in random.Random(asked.seed).sample(places, len(places)):
            if time.time() < stop:
                fates[fate_of(file, at, tests, notes / "mutant.py")] += 1
    print(", ".join(f"{count} {fate}" for fate, count in fates.items()))


def fate_of(file: Path, at: int, tests: dict[tuple[str, int], list[str]], made: Path) -> str:
    """Return what becomes of a file with one place changed, and say so where it is not killed."""
    tree = ast.parse(file.read_text())
    node, around = sites(tree)[at]
    before = ast.unparse(node).splitlines()[0]
    change(node)
    made.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
    first = min([around.lineno, *(mark.lineno for mark in around.decorator_list)])
    chosen = tests.get((str(file), first), [])
    fate = run(["-x", *chosen], 10 * SECONDS, MUTANT=f"{module}={made}") if chosen else "entered by no test"
    if fate != "killed":
        after = ast.unparse(node).splitlines()[0]
        print(f"{fate}: {file.relative_to(ROOT)}:{node.lineno}: {before}  ->  {after}", flush=True)
    return fate


def run(options: list[str], limit: float | None, **more: str) -> str:
    """Run tests, and end whatever they started; return what became of the mutant."""
    env = {**os.environ, "PYTHONPATH": str(HOOK), "PYTHONDONTWRITEBYTECODE": "1", **more}
    process = subprocess.Popen(
        [*PYTEST, *options], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return {0: "lived", 4: "its tests are gone"}.get(process.wait(limit), "killed")
    except subprocess.TimeoutExpired:
        return "killed"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def quickest(notes: Path) -> dict[tuple[str, int], list[str]]:
    """Return, by file and first line of a function, the quickest tests that enter it."""
    seconds, entered = defaultdict[str, float](float), defaultdict[tuple[str, int], set[str]](set)
    for test, taken in (line.split("\t") for line in (notes / "times").read_text().splitlines()):
        seconds[test] += float(taken)
    for test, file, first in (line.split("\t") for line in (notes / "entered").read_text().splitlines()):
        entered[file, int(first)].add(test)
    found: dict[tuple[str, int], list[str]] = {}
    for place, tests in entered.items():
        left, found[place] = SECONDS, []
        for test in sorted(tests & seconds.keys(), key=lambda test: seconds[test]):
            if not found[place] or left > seconds[test]:
                found[place].append(test)
                left -= seconds[test]
    return found


def sites(tree: ast.AST) -> list[tuple[Any, ast.FunctionDef]]:
    """Return what can be changed in a module, in order, each with the innermost function around it."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = {id(node): (node, each) for each in functions for part in each.body for node in changeable(part)}
    return list(found.values())


def changeable(node: ast.AST) -> Iterator[ast.AST]:
    """Give what can be changed under a node: no texts, errors, annotations and defaults."""
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) | ast.Compare(ops=[op, *_]):
            yield from [node] if type(op) in SWAPS else []
        case ast.Constant(value=bool() | 0 | 1 | 2) | ast.If() | ast.IfExp() | ast.Expr(value=ast.Call()):
            yield node
    for name, held in ast.iter_fields(node):
        for part in held if isinstance(held, list) else [held]:
            if isinstance(part, ast.AST) and not isinstance(part, LEFT_ALONE) and name != "annotation":
                yield from changeable(part)


def change(node: Any) -> None:
    """Change a place of the tree."""
    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            node.op = SWAPS[type(node.op)]()
        case ast.Compare():
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.Constant(value=int() as held):
            node.value = not held if isinstance(held, bool) else held + 1
        case ast.If():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.IfExp():
            node.body, node.orelse = node.orelse, node.body
        case ast.Expr():
            node.value = ast.Constant(None)


if __name__ == "__main__":
    main()
