"""What a run cost, by a table of the user's own."""

import hashlib
import json
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.errors import RecipeError
from weft.train.saved.prices import read_prices, spans_of

TABLE = """[cluster]
machine = "large"
workers = 2
[cluster.prices]
date = 2026-11-01
large = 3.6
small = 1
"""


def table(folder: Path, text: str = TABLE) -> Path:
    path = folder / "prices.toml"
    path.write_text(text)
    return path


def test_machines_are_paid_by_the_hour_and_value_is_one_over_time_and_cost(tmp_path: Path) -> None:
    cost = read_prices(table(tmp_path)).cost(10.0, workers=3)
    assert cost["machines"] == 2
    assert cost["dollars"] == pytest.approx(0.02)
    assert cost["value"] == pytest.approx(5.0)
    assert cost["date"] == "2026-11-01"
    assert cost["sha256"] == hashlib.sha256(TABLE.encode()).hexdigest()
    free = read_prices(table(tmp_path, TABLE.replace("3.6", "0"))).cost(10.0, workers=1)
    assert (free["dollars"], free["value"]) == (0.0, None)


def test_workers_that_come_and_go_are_paid_for_as_long_as_they_are_there(tmp_path: Path) -> None:
    changes = [(2.0, [0, 1]), (10.0, [0, 1, 2, 3]), (14.0, [1])]
    events = [{"event": "generation", "time": when, "workers": who} for when, who in changes]
    spans = spans_of([{"event": "epoch", "time": 12.0}, *events], 20.0)
    assert spans == [(10.0, 2), (4.0, 4), (6.0, 1)], "the first ones were there from the start"
    cost = read_prices(table(tmp_path)).cost_of(spans)
    assert cost["dollars"] == pytest.approx(0.001 * (10 * 1 + 4 * 2 + 6 * 1))
    assert (cost["machines"], cost["value"]) == (2, pytest.approx(1 / (20 * cost["dollars"])))
    assert spans_of([{"event": "epoch", "time": 12.0}], 20.0) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("date = 2026-11-01", "", "say of which day it is"),
        ("date = 2026-11-01", 'date = "today"', "has date 'today'"),
        ('"large"', '"lagre"', "cluster.machine is 'lagre'; did you mean 'large'"),
        ("3.6", '"dear"', "large is 'dear'; give dollars an hour"),
        ("3.6", "-1", "large is -1; give dollars an hour"),
        ("workers = 2", "workers = 0", "cluster.workers is 0"),
        ("[cluster.prices]", "[prices]", r"expected \[cluster\] with a machine, and \[cluster.prices\]"),
        ("[cluster]", "[cluster", "prices.toml: "),
    ],
)
def test_a_table_that_says_no_price_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    with pytest.raises(RecipeError, match=told) as found:
        read_prices(table(tmp_path, TABLE.replace(old, new)))
    assert "\n" not in str(found.value)


def test_a_run_tells_what_it_cost_and_by_which_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sets = tmp_path / "run", ["data.nodes=60", "train.epochs=1", "model.hidden=4"]
    words = ["train", f"--out={out}", *(f"--set={each}" for each in sets)]
    assert main([*words, f"--set=train.prices={tmp_path / 'none.toml'}"]) == 2
    assert "train.prices: cannot read" in capsys.readouterr().err
    assert not out.exists()
    assert main([*words, f"--set=train.prices={table(tmp_path)}"]) == 0
    told = capsys.readouterr().err
    assert "dollars (1 x large at 3.6 an hour)" in told
    assert "prices of 2026-11-01" in told
    cost = json.loads((out / "run.json").read_text())["summary"]["cost"]
    assert cost["dollars"] > 0
    page = (out / "report.html").read_text()
    assert "1 x large, prices of 2026-11-01" in page
    assert f"table {cost['sha256'][:8]}" in page
