"""Answers to questions by name, and nodes that are alike: exact, from rows of a run."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import weft
from weft.cli.main import main
from weft.graph.ends import edge_ends
from weft.pipeline.infer.scoring import Scoring, open_run
from weft.tasks.base import head_of

NAMES = [f"e{row:02d}" for row in range(20)]
RECIPE: dict[str, Any] = {
    "task.name": "link_prediction",
    "task.score.name": "complex",
    "task.score.reciprocal": "true",
    "task.width": 8,
    "task.split.by": "given",
    "model.name": "rgcn",
    "model.hidden": 8,
    "model.dropout": 0.0,
    "train.epochs": 2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of links on facts, which lie beside it."""
    folder = tmp_path_factory.mktemp("facts")
    made, lines = torch.Generator().manual_seed(0), []
    for relation, shift in (("next to", 1), ("above", 5), ("like", 0)):
        for node, name in enumerate(NAMES):
            split = ("train", "train", "train", "val", "test")[int(torch.randint(5, (1,), generator=made))]
            lines.append(f"{name}\t{relation}\t{NAMES[(node + shift) % 20]}\t{split}\n")
    (folder / "facts.tsv").write_text("".join(lines))
    graph = str(folder / "graph")
    assert main(["ingest", f"triples={folder / 'facts.tsv'}", "--out", graph]) == 0
    recipe = {**RECIPE, "data.path": graph}
    options = [word for key, value in recipe.items() for word in ("--set", f"{key}={value}")]
    assert main(["train", *options, "--out", str(folder / "run")]) == 0
    return folder / "run"


def rows_and_scorer(run: Path) -> tuple[Scoring, torch.Tensor, Any]:
    scoring = open_run(run, None, all_edges=False)
    with torch.no_grad():
        rows = scoring.model.eval()(scoring.graph.block(), scoring.graph.x)
    return scoring, rows, head_of(scoring.model)


def infer(run: Path, out: Path, *options: str) -> dict[str, list[Any]]:
    assert main(["infer", str(run), *options, "--out", str(out)]) == 0
    (file,) = out.glob("*.parquet")
    found: dict[str, list[Any]] = pq.read_table(file).to_pydict()
    return found


@torch.no_grad()
@pytest.mark.parametrize("include_known", [False, True])
@pytest.mark.parametrize("memory", ["1GiB", "9KiB"])
def test_answers_are_the_best_of_all_by_name_at_either_end(
    run: Path, tmp_path: Path, include_known: bool, memory: str
) -> None:
    asked = [("e03", "above", ""), ("", "next to", "e07"), ("e11", "above", ""), ("e00", "like", "")]
    columns = dict(zip(("head", "relation", "tail"), map(list, zip(*asked))))
    pq.write_table(pa.table(columns), tmp_path / "asked.parquet")
    known = ["--include-known"] if include_known else []
    found = infer(
        run,
        tmp_path / "out",
        "--questions",
        str(tmp_path / "asked.parquet"),
        "--answers",
        "4",
        "--memory",
        memory,
        *known,
    )
    scoring, rows, scorer = rows_and_scorer(run)
    data = scoring.data
    words = [kind[1] for kind in data.edge_types]
    src, dst, kinds = edge_ends(data)
    true = {*zip(src.tolist(), kinds.tolist(), dst.tolist())}
    expected = []
    for number, (head, relation, tail) in enumerate(asked, start=1):
        kind = words.index(relation)
        given, side = (head, "dst") if head else (tail, "src")
        one = NAMES.index(given)
        scores = scorer.against(rows[[one]], rows, torch.tensor([kind]), side=side)[0]
        fits = []
        for node, score in enumerate(scores.tolist()):
            fact = (one, kind, node) if head else (node, kind, one)
            if include_known or fact not in true:
                fits.append((-score, node, fact))
        for rank, (score, _, fact) in enumerate(sorted(fits)[:4], start=1):
            expected.append(
                (number, rank, NAMES[fact[0]], relation, NAMES[fact[2]], pytest.approx(-score, abs=1e-5))
            )
    names = ("question", "rank", "head", "relation", "tail", "score")
    assert sorted(zip(*(found[name] for name in names)), key=lambda row: row[:2]) == expected


@torch.no_grad()
def test_the_nearest_are_those_whose_rows_point_the_same_way(run: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("id\ne04\ne17\n")
    found = infer(run, tmp_path / "out", "--nearest", "3", "--of", str(tmp_path / "ids.csv"))
    scoring, rows, _ = rows_and_scorer(run)
    likeness = torch.nn.functional.normalize(rows) @ torch.nn.functional.normalize(rows).T
    likeness.fill_diagonal_(-2.0)
    best = likeness[[4, 17]].topk(3)
    assert found["source"] == ["e04"] * 3 + ["e17"] * 3
    assert found["target"] == [NAMES[node] for node in best.indices.flatten().tolist()]
    assert found["score"] == pytest.approx(best.values.flatten().tolist(), abs=1e-5)
    near = weft.nearest(scoring.model, scoring.graph, 3, of=[4, 17])
    assert torch.equal(near.ids, best.indices)


def test_given_facts_are_scored_by_head_relation_and_tail(run: Path, tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("head,relation,tail\ne01,above,e06\ne02,like,e02\n")
    found = infer(run, tmp_path / "out", "--pairs", str(tmp_path / "facts.csv"))
    _, rows, scorer = rows_and_scorer(run)
    above, like, _ = range(3)  # relations in the order of their names
    with torch.no_grad():
        expected = scorer(rows[[1, 2]], rows[[6, 2]], torch.tensor([above, like]))
    assert found["score"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert found["source"] == ["e01", "e02"]


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (["--answers", "3"], "", "--answers is for --questions FILE"),
        (["--nearest", "0"], "", "--nearest: expected a number of at least 1"),
        (["--nearest", "3", "--partners", "2"], "", "ask for one of them"),
        (["--questions", "FILE"], "head,relation,tail\ne01,above,e02\n", "row 1 has both a head and a tail"),
        (["--questions", "FILE"], "head,relation,tail\n,above,\n", "row 1 has neither a head nor a tail"),
        (["--questions", "FILE"], "relation\nabove\n", "no column 'head' or 'tail'"),
        (["--questions", "FILE"], "head,relation\ne01,abvoe\n", "'abvoe' is none of"),
        (["--questions", "FILE"], "head,relation\nnobody,above\n", "nobody"),
        (
            ["--questions", "FILE", "--relation", "above"],
            "head,relation\ne01,above\n",
            "--relation is for --partners K",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], text: str, said: str
) -> None:
    (tmp_path / "asked.csv").write_text(text)
    words = [str(tmp_path / "asked.csv") if word == "FILE" else word for word in options]
    assert main(["infer", str(run), *words, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert said in told[-1]
    assert not (tmp_path / "out").exists()
