"""Options of engines and fanouts as commands read them."""

import argparse

import pytest

from weft.cli.engine import add_engine_arguments, engine_options, parse_fanout, parse_settings
from weft.errors import RecipeError


def test_options_are_those_that_the_pipeline_takes() -> None:
    parser = argparse.ArgumentParser()
    add_engine_arguments(parser)
    usual = engine_options(parser.parse_args([]))
    assert usual == {"engine": "duckdb", "master": None, "settings": {}, "memory": None}
    words = ["--engine", "spark", "--master", "local[2]", "--conf", "spark.a=b=c", "--conf", "spark.d="]
    asked = engine_options(parser.parse_args([*words, "--memory", "2G"]))
    assert asked["settings"] == {"spark.a": "b=c", "spark.d": ""}
    assert (asked["engine"], asked["master"], asked["memory"]) == ("spark", "local[2]", "2G")


@pytest.mark.parametrize("given", ["spark.a", "a=b", "=b"])
def test_a_setting_has_a_key_of_spark_and_a_value(given: str) -> None:
    with pytest.raises(RecipeError, match=r"--conf: expected spark\.KEY=VALUE, got"):
        parse_settings([given])


def test_one_fanout_counts_for_all_hops_and_several_for_one_each() -> None:
    assert parse_fanout("5", 3) == [5, 5, 5]
    assert parse_fanout("5,-1", 2) == parse_fanout("5,-1") == [5, -1]
    with pytest.raises(RecipeError, match="--fanout has 2 numbers and --hops is 3"):
        parse_fanout("5,4", 3)
    with pytest.raises(RecipeError, match="expected whole numbers such as 15,10, got '5,x'"):
        parse_fanout("5,x")
