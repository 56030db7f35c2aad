from __future__ import annotations

import math

import pytest

from weft.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (8.7e-4, "870 µs"),
        (0.0123, "12.3 ms"),
        (0.99996, "1.00 s"),
        (4.56, "4.56 s"),
        (200.0, "3 min 20 s"),
        (7500.0, "2 h 05 min"),
        (None, "–"),
        (math.nan, "–"),
        (-1.0, "–"),
    ],
)
def test_durations_come_in_the_unit_that_suits_them(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1536, "1.50 KiB"),
        (345 * 2**20, "345 MiB"),
        (1020 * 2**20, "1,020 MiB"),
        (2**30, "1.00 GiB"),
    ],
)
def test_sizes_are_binary(value: float, text: str) -> None:
    assert words.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.331, "0.331"),
        (1234.5, "1,234"),
        (-0.5, "−0.500"),
        (1e-9, "1.00e−09"),
        (math.inf, "∞"),
        (math.nan, "not a number"),
    ],
)
def test_decimals_keep_three_digits(value: float, text: str) -> None:
    assert words.decimal(value) == text


def test_counts_and_shares() -> None:
    assert words.count(1234567) == "1,234,567"
    assert words.percent(0.8154) == "81.5 %"
    assert words.density(0.00197) == "0.20 %"
    assert words.plural(1, "class", "classes") == "1 class"
    assert words.plural(2000, "epoch") == "2,000 epochs"


@pytest.mark.parametrize("value", [True, None, "12", "abc", [1], {}, 10**400])
def test_what_is_no_number_is_not_read_as_one(value: object) -> None:
    assert words.number(value) is None


def test_not_a_number_is_read_as_one() -> None:
    assert math.isnan(words.number("NaN") or 0.0)
    assert words.number(3) == 3.0


def test_values_are_written_as_toml() -> None:
    assert words.toml({"name": "sampled", "p": 0.1}) == '{name = "sampled", p = 0.1}'
    assert words.toml([1, True, None, 'a "b"']) == '[1, true, none, "a \\"b\\""]'


def test_metrics_have_names_for_people() -> None:
    assert words.label("macro_f1") == "Macro F1"
    assert words.label("some_score") == "Some score"
    assert words.inline("accuracy") == "accuracy"
    assert words.inline("micro_f1") == "micro F1"
    assert words.inline("roc_auc") == "ROC-AUC"
