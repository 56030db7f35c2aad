"""The shape of the code: who may import whom, what is public, which options exist, what is never written."""

import argparse
import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli.main import parser
from weft.registry import Registry

SOURCE = Path(weft.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
# Each level may import itself and those before it.
LEVELS = [
    {
        "errors",
        "reading",
        "registry",
        "code",
        "config",
        "events",
        "format",
        "placing",
        "draw",
        "meaning",
        "machine",
        "process",
        "sizes",
    },
    {"kernels"},
    {"compiler"},
    {"graph"},
    {"comm"},
    {"layers", "nn", "datasets", "partitioners", "exchanges", "samplers", "stores", "algorithms", "interop"},
    {"tasks"},
    {"strategies"},
    {"train"},
    {"plan", "pipeline", "report"},
    {"simulate"},
    {"cli", "__main__"},
]
LEVEL_OF = {name: number for number, names in enumerate(LEVELS) for name in names}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST) -> Iterator[str]:
    """Give the parts of weft that a module imports, anywhere in it, or reaches as `weft.X`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "weft":
            yield from (home_of(alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "weft":
            yield home_of(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("weft."))


def home_of(name: str) -> str:
    """Return the part that a name of `weft` lives in; "__init__" for what is the front's own."""
    if name in LEVEL_OF or not hasattr(weft, name):
        return name
    return weft._HOME[name].split(".")[1] if name in weft._HOME else "__init__"


def test_names_reached_through_the_front_count_as_imports() -> None:
    code = "import weft\ndef late(): weft.report.write_report(weft.Graph, weft.load, weft.__path__)"
    assert set(imported_parts(ast.parse(code))) == {"report", "graph", "__init__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return  # the front knows everything, and loads it on first use
    for target in {*imported_parts(tree_of(path))} - {"__init__"}:
        assert target in LEVEL_OF, f"{path}: weft.{target} has no level here"
        assert LEVEL_OF[target] <= LEVEL_OF[part], f"{path} imports weft.{target}, which stands above {part}"


def mirrored(path: Path) -> Path:
    """Return where the tests of a module are: weft/graph/ends.py has tests/graph/test_ends.py."""
    inside = path.relative_to(SOURCE)
    return Path(__file__).parent / inside.parent / f"test_{inside.stem.strip('_')}.py"


def test_four_of_five_modules_have_tests_at_the_mirrored_path() -> None:
    modules = [path for path in FILES if path.name != "__init__.py"]
    without = [str(path.relative_to(SOURCE)) for path in modules if not mirrored(path).is_file()]
    assert len(without) <= 0.2 * len(modules), f"{len(without)} of {len(modules)} have none: {without}"


def test_no_module_is_longer_than_450_lines() -> None:
    counts = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in counts.items() if lines > 450} == {}


def lines_of_code(function: ast.FunctionDef) -> int:
    """Return the lines of a function without its signature and its docstring."""
    told = ast.get_docstring(function) is not None
    body = function.body[1:] if told else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_function_has_more_than_45_lines_of_code() -> None:
    functions = [
        (f"{path.relative_to(SOURCE)}: {node.name}", lines_of_code(node))
        for path in FILES
        if path.parent.name != "triton"  # a kernel is one function, unless its parts are worth a name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
    ]
    assert [(name, lines) for name, lines in functions if lines > 45] == []


# Attributes of torch, and of named tuples, that have no public name.
TORCHS = {"_schema", "_version", "_name", "_parameters", "_buffers", "_modules", "_replace", "_asdict"}
TORCHS |= {"_weft"}  # what weft.accelerate writes on modules of PyG


def names_made(tree: ast.AST) -> Iterator[str]:
    """Give what a module defines or sets, by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def private_of_others(path: Path, private: set[str]) -> list[str]:
    """Return the private attributes of weft that a module reads and does not make itself."""
    own = {*names_made(tree_of(path)), *TORCHS}
    read = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute))
    others = [node for node in read if ast.unparse(node.value) not in ("self", "cls", "super()")]
    return [ast.unparse(node) for node in others if node.attr in private - own]


def test_nobody_reads_the_private_attributes_of_other_modules() -> None:
    made = {name for path in FILES for name in names_made(tree_of(path))}
    private = {name for name in made if name.startswith("_") and not name.startswith("__")}
    asked = {str(path.relative_to(SOURCE)): private_of_others(path, private) for path in FILES}
    assert {name: found for name, found in asked.items() if found} == {}, "give the class a public method"


def test_contributors_are_told_the_same_direction() -> None:
    page = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("errors ") and "←" in line]
    held = {part_of(path) for path in FILES} - {"nn", "__main__"}
    told = [set(level.split()) for level in line.split("←")]
    assert told == [level & held for level in LEVELS if level & held]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_dangerous_is_written(path: Path) -> None:
    tree = tree_of(path)
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not called & {"eval", "exec", "torch.load", "torch.save", "os.system", "numpy.fromfile"}
    assert not imported & {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    assert not re.search(
        r"shell\s*=\s*True|0\.0\.0\.0|allow_pickle\s*=\s*True|_create_unverified", path.read_text()
    )
    if part_of(path) not in ("cli", "report"):
        assert "print" not in called


def test_what_can_run_on_a_gpu_is_marked_so() -> None:
    tests = Path(__file__).parent
    named = re.compile(r"WEFT_TEST_DEVICE|from kernel_checks import .*\bDEVICE\b")
    able = {path for path in tests.rglob("test_*.py") if named.search(path.read_text())} - {Path(__file__)}
    able |= {
        tests / "kernels" / f"test_{path.name}" for path in (SOURCE / "kernels" / "triton").glob("[a-z]*.py")
    }
    unmarked = [path.name for path in able if path.exists() and "pytest.mark.gpu" not in path.read_text()]
    assert unmarked == [], "`make test-gpu` runs the files with pytest.mark.gpu"


ASKED = re.compile(r"\b(name|task|strategy|exchange|sampler|store|partitioner|layer|model|engine|ranker)\b")
# Where a name stands for itself, and no class could be asked.
MAY_COMPARE = {
    "compiler/lower.py": "'sum' is an operator of torch there",
    "report/read.py": "a run is read by the names in its files, without the code that wrote it",
    "train/optim.py": "'cosine' is a schedule there",
}


def registries() -> list[Registry[Any]]:
    """Return every registry that a module of weft holds."""
    names = [path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".") for path in FILES]
    modules = [import_module(name) for name in names if "triton" not in name and "__" not in name]
    found = (value for module in modules for value in vars(module).values())
    return list({id(value): value for value in found if isinstance(value, Registry)}.values())


def compared_words(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Give each literal that something is compared with, or looked for in, and the comparison."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
        if isinstance(node.left, ast.Constant) and isinstance(node.ops[0], ast.In | ast.NotIn):
            continue  # whether there is such a key
        sides = [node.left, *node.comparators]
        plain = (ast.Constant, ast.Tuple, ast.List, ast.Set)
        items = [item for side in sides for item in getattr(side, "elts", [side])]
        if any(ASKED.search(ast.unparse(side)) for side in sides if not isinstance(side, plain)):
            words = [item.value for item in items if isinstance(item, ast.Constant)]
            yield from ((word, ast.unparse(node)) for word in words if isinstance(word, str))


def test_a_name_that_is_compared_is_seen() -> None:
    code = "if options['name'] == 'mmap' or store.name in ('memory', 'x'): mode == 'mmap'"
    assert [word for word, _ in compared_words(ast.parse(code))] == ["mmap", "memory", "x"]
    assert [word for word, _ in compared_words(ast.parse("name == 'mmap'"))] == ["mmap"]


def test_what_an_entry_can_do_is_asked_of_its_class_and_not_of_its_name() -> None:
    homes: dict[str, set[str]] = {}
    for registry in registries():
        for name in registry.names():
            homes.setdefault(name, set()).add(str(inspect.getsourcefile(registry[name])))  # type: ignore[arg-type]
    told = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path in FILES
        if str(path.relative_to(SOURCE)) not in MAY_COMPARE
        for word, text in compared_words(ast.parse(path.read_text()))
        if word in homes and str(path) not in homes[word]
    ]
    assert told == [], "put what differs on the class as an attribute, and read it there"
    assert len(homes) > 60, "the registries are found"


KINDS_OF_GRAPH = {"Graph", "LocalGraph", "RecordGraph", "WorkerEdges", "PartitionedSampler", "Shard"}
TELL_APART = {
    "strategies/minibatch/batch_source.py",  # the one place that makes a source of batches of what is held
    "stores/open.py",  # rows of a store: all, or those of a rank
    "samplers/links/link_loader.py",  # what users give: a graph, or PyG's data
    "train/check.py",
    "train/explain.py",
    "train/inference/infer.py",
    "train/needs.py",
}


def kinds_asked_for(tree: ast.AST) -> Iterator[str]:
    """Give the kinds of graph that code tells apart, or takes one for another of."""
    for node in ast.walk(tree):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if called == "isinstance":
            yield from KINDS_OF_GRAPH & {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        elif called == "cast" and ast.unparse(node.args[0]).strip("'\"") in KINDS_OF_GRAPH:  # type: ignore[attr-defined]
            yield "cast"


def test_a_kind_of_graph_that_is_asked_for_is_seen() -> None:
    assert [*kinds_asked_for(ast.parse("if isinstance(held, LocalGraph): ..."))] == ["LocalGraph"]
    assert [*kinds_asked_for(ast.parse("cast(Graph, held); cast('Graph', held); cast(int, 1)"))] == [
        "cast"
    ] * 2


def test_nobody_asks_which_kind_of_graph_a_process_holds() -> None:
    asked = {path.relative_to(SOURCE).as_posix(): {*kinds_asked_for(tree_of(path))} for path in FILES}
    forks = {name for name, kinds in asked.items() if kinds and not name.startswith("graph/")}
    assert forks <= TELL_APART, "let the object say it: weft.graph.views has what they share"
    assert not [name for name, kinds in asked.items() if "cast" in kinds], "an untrue cast"


def tasks_told_apart(tree: ast.AST) -> Iterator[str]:
    """Give what code compares the class of a task, or of targets, with."""
    for node in ast.walk(tree):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if called in ("isinstance", "issubclass"):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            yield from (name for name in sorted(names) if re.fullmatch(r"\w+(Task|Targets)", name))


def test_a_task_that_is_told_apart_is_seen() -> None:
    code = "isinstance(task, PairTask) or issubclass(kind, ClassTask) or isinstance(held, NodeTargets)"
    assert [*tasks_told_apart(ast.parse(code))] == ["PairTask", "ClassTask", "NodeTargets"]


def test_nobody_but_tasks_asks_which_task_it_is() -> None:
    asked = {str(path.relative_to(SOURCE)): [*tasks_told_apart(tree_of(path))] for path in FILES}
    forks = {name: kinds for name, kinds in asked.items() if kinds and not name.startswith("tasks/")}
    assert forks == {}, "let the task say it: weft.tasks.base.Task has what callers ask"


# What is known of targets is the affair of tasks: these run any of them, or write down what they say.
ANY_TASK = ("comm", "exchanges", "report", "samplers", "stores", "strategies", "train")
ANY_TASK_FILES = ("pipeline/infer/write.py", "pipeline/flatten/assemble.py")
MAY_NAME = {
    "exchanges/accuracy.py": "names the benchmarks that measured what approximations cost",
    "train/proof/graphs.py": "makes the graphs that the proof trains on",
    "train/saved/summary.py": "tells accuracy under names of its own, too",
}
OF_TARGETS = re.compile(
    r"(^|[^a-z])(labels|(un|multi)?labell?ed|multilabel|(num_)?classes|class_(names|weights?|counts)"
    r"|accuracy|(train|val|test)_mask)($|[^a-z])"
)


def words_of(tree: ast.AST) -> Iterator[str]:
    """Give the names that a module uses and the text that it holds, without docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value
        names = (getattr(node, field, None) for field in ("id", "attr", "arg", "name"))
        yield from (name for name in names if isinstance(name, str))


def test_a_word_of_one_task_is_seen() -> None:
    code = 'graph.num_classes; f"{n} records have no labels"; held["train_mask"]; scores(accuracy=1)'
    found = [word for word in words_of(ast.parse(code)) if OF_TARGETS.search(word)]
    assert sorted(found) == [" records have no labels", "accuracy", "num_classes", "train_mask"]
    plain = '"The labels."; Label("rows"); subclasses; masked; dataclasses'
    assert not [word for word in words_of(ast.parse(plain)) if OF_TARGETS.search(word)]


def test_nobody_but_tasks_knows_of_labels_classes_and_masks() -> None:
    inside = {path: path.relative_to(SOURCE).as_posix() for path in FILES}
    asked = [path for path, name in inside.items() if part_of(path) in ANY_TASK or name in ANY_TASK_FILES]
    found = {
        inside[path]: sorted({word for word in words_of(tree_of(path)) if OF_TARGETS.search(word)})
        for path in asked
        if inside[path] not in MAY_NAME
    }
    assert {name: words for name, words in found.items() if words} == {}, "let the task say it: tasks/base.py"
    assert len(asked) > 200, "the modules are found"


# Words that stand for anything: a variable is named for what it is. Lower the number with what you rename.
FOR_ANYTHING = {"held", "found", "place", "given", "told"}
NAMED_SO = 1488


def names_for_anything(tree: ast.AST) -> Iterator[str]:
    """Give each variable, argument, attribute and function that a module makes under such a name."""
    yield from (name for name in names_made(tree) if name in FOR_ANYTHING)
    yield from (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg in FOR_ANYTHING)


def test_a_name_that_stands_for_anything_is_seen() -> None:
    code = "def told(held):\n    found = [place for place in held]\n    held.given = found\n    return found"
    assert sorted(names_for_anything(ast.parse(code))) == ["found", "given", "held", "place", "told"]


def test_names_that_stand_for_anything_become_fewer() -> None:
    counts = {path.relative_to(SOURCE).as_posix(): [*names_for_anything(tree_of(path))] for path in FILES}
    most = sorted(counts, key=lambda name: -len(counts[name]))[:5]
    number = sum(len(names) for names in counts.values())
    assert number <= NAMED_SO, f"name what is there; most are in {most}"
    assert number > NAMED_SO - 100, f"there are {number} now: write that above"


def test_a_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_a_file_name_says_what_is_in_the_file() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        if path.parent.name != "triton":  # whose files are named for the kernels that they are
            homes.setdefault(path.name, []).append(str(path.relative_to(SOURCE)))
    # The block of a room, and the plain definition that fast code is held to.
    usual = {"__init__.py", "base.py", "block.py", "reference.py"}
    shared = {name: paths for name, paths in homes.items() if len(paths) > 2 and name not in usual}
    assert shared == {}


def test_pages_for_engineers_name_files_that_are_there() -> None:
    root = Path(__file__).resolve().parents[1]
    wrong = []
    for page in ("README.md", "CONTRIBUTING.md", "docs/architecture.md"):
        for path in re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|md|toml|cpp|h))`", (root / page).read_text()):
            if "NAME" not in path and not any((place / path).exists() for place in (root, SOURCE)):
                wrong.append(f"{page}: {path}")
    assert wrong == []


def test_public_names_change_only_on_purpose() -> None:
    assert weft.__all__ == sorted(weft.__all__)
    assert set(weft.__all__) == {
        *("Block", "Graph", "SparseFeatures", "Summary", "Recipe"),
        *("DataNote", "InputError", "WeftError", "WeftWarning"),
        *("accelerate", "accelerated", "infer", "load", "nearest", "partners", "plan"),
        *("read_events", "read_recipe"),
        *("compile_messages", "explain", "score_pairs", "simulate", "train"),
        *("algorithms", "datasets", "draw", "errors", "kernels", "layers", "nn", "partitioners", "report"),
        *("samplers", "stores", "strategies"),
        "__version__",
    }


def test_options_of_the_command_line_change_only_on_purpose() -> None:
    commands = next(item for item in parser()._actions if isinstance(item, argparse._SubParsersAction))
    options = {
        name: sorted(
            option for action in command._actions for option in action.option_strings or [action.dest]
        )
        for name, command in commands.choices.items()
    }
    assert options == {
        "scale": ["--help", "-h", "folder", "workers"],
        "train": [
            *("--engine", "--grow", "--help", "--json", "--keep-parts", "--listen", "--max-restarts"),
            *(
                "--notice",
                "--out",
                "--parts",
                "--ray-address",
                "--resume",
                "--set",
                "--workers",
                "-h",
                "recipe",
            ),
        ],
        "plan": [
            *("--classes", "--cluster", "--degree", "--edges", "--epochs", "--features", "--help", "--json"),
            *(
                "--learn",
                "--links",
                "--measure",
                "--memory",
                "--nodes",
                "--only",
                "--picture",
                "--set",
                "--workers",
                "-h",
                "recipe",
            ),
        ],
        "simulate": [
            *("--away", "--bandwidth", "--checkpoint-every", "--classes", "--cluster", "--degree", "--edges"),
            *("--exchange", "--failures", "--features", "--help", "--jitter", "--json", "--latency"),
            *("--leaving", "--nodes", "--only", "--parts", "--picture", "--rehearse", "--seed", "--set"),
            *("--stragglers", "--weak", "--workers", "-h", "recipe"),
        ],
        "ingest": [
            *(
                "--conf",
                "--engine",
                "--fix",
                "--help",
                "--json",
                "--master",
                "--memory",
                "--out",
                "--overwrite",
            ),
            *("--save-schema", "--schema", "-h", "tables"),
        ],
        "explain": ["--graph", "--help", "--json", "--picture", "--set", "--workers", "-h", "model"],
        "validate": ["--fix", "--help", "--json", "--memory", "--save-schema", "--schema", "-h", "tables"],
        "flatten": [
            *("--conf", "--engine", "--fanout", "--features", "--help", "--hops", "--hub", "--json"),
            *("--master", "--memory", "--out", "--overwrite", "--seed", "--set", "--targets", "--temporal"),
            *("--weight", "--yes", "-h", "graph"),
        ],
        "infer": [
            *("--all-edges", "--answers", "--conf", "--device", "--engine", "--fanout", "--graph", "--help"),
            *("--include-known", "--json", "--master", "--memory", "--nearest", "--nodes", "--of", "--out"),
            *("--overwrite", "--pairs", "--partners", "--questions", "--relation", "--seed", "-h", "folder"),
        ],
        "partition": [
            *("--cluster", "--help", "--hidden", "--json", "--layers", "--name", "--out", "--overwrite"),
            *("--parts", "--set", "--timeout", "--workers", "-h", "graph"),
        ],
        "algorithm": ["--help", "--out", "--overwrite", "--set", "--workers", "-h", "name", "parts"],
        "report": ["--help", "--out", "-h", "runs"],
        "bench": ["--help", "--list", "-h", "cases"],
        "selftest": ["--cover", "--graph", "--help", "--parts", "--results", "-h", "checks"],
        "doctor": ["--help", "--json", "-h"],
    }


def test_every_command_shows_an_example_in_its_help() -> None:
    commands = next(item for item in parser()._actions if isinstance(item, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        assert f"weft {name}" in command.format_help().split("options:")[1], name
