"""Registries: names that are nearly right."""

import pytest

from weft.registry import suggest


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("gnc", ["sgc", "gcn", "gin"], "gcn"),  # letters in another order before other letters
        ("epoch", ["epochs", "patience"], "epochs"),
        ("gatt", ["gat", "gatv2"], "gat"),
    ],
)
def test_the_likeliest_name_is_suggested(name: str, known: list[str], nearest: str) -> None:
    assert suggest(name, known) == f"did you mean {nearest!r}? "
    assert suggest(name, known[::-1]) == f"did you mean {nearest!r}? "


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggest("x", ["gcn"]) == ""
