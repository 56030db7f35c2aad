"""What compiling costs is counted once for a message, and told by a run."""

import json
import re
from pathlib import Path

import torch
from torch import Tensor

import weft
from weft.cli.main import main
from weft.compiler.spent import SPENT, Spent


def test_a_message_is_counted_once() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=300)
    block, x = graph.block(), torch.randn(graph.num_nodes, 8)

    def message(there: Tensor, here: Tensor) -> Tensor:
        return (there * here).tanh()

    before = SPENT.copy()
    for _ in range(3):
        block.propagate(message, src=(x,), dst=(x,))
    cost = SPENT.since(before)
    assert cost.messages == 1
    assert 0 < cost.seconds < 10


def test_time_that_ends_in_an_error_is_counted() -> None:
    spent = Spent()
    try:
        with spent.on(messages=1):
            raise ValueError
    except ValueError:
        pass
    assert spent.messages == 1
    assert spent.seconds > 0


def test_a_run_tells_the_cost_before_its_first_epoch_and_once(tmp_path: Path, capsys: object) -> None:
    given = ["--set", "model.name=edgeconv", "--set", "model.hidden=9", "--set", "data.nodes=200"]
    assert main(["train", *given, "--set", "train.epochs=3", "--out", str(tmp_path / "run")]) == 0
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("compiled") == 1
    assert kinds.index("compiled") < kinds.index("epoch")
    told = capsys.readouterr().err  # type: ignore[attr-defined]
    assert len(re.findall(r"compiled \d messages? in ", told)) == 1, (
        "those that other tests compiled are known"
    )
