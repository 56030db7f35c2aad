"""Numbers of bytes as people write them and read them."""

import pytest

from weft.errors import RecipeError
from weft.sizes import parse_bytes, shown


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, 1), ("12", 12), ("12b", 12), ("3k", 3072), ("3 KB", 3000), ("1.5KiB", 1536), ("2m", 2**21),
        ("2MB", 2_000_000), ("1g", 2**30), ("1t", 2**40), (" 7 GiB ", 7 * 2**30),
    ],
)  # fmt: skip
def test_sizes_are_read_by_their_unit(given: object, expected: int) -> None:
    assert parse_bytes(given) == expected


@pytest.mark.parametrize("given", ["", "much", "-1", "0", "1.2.3", "3x", "0.5", 2**60, "2000000t", None])
def test_what_is_no_size_is_refused_where_it_stands(given: object) -> None:
    with pytest.raises(RecipeError, match=r"^strategy\.memory: expected a size such as 512MiB or 8GiB, got"):
        parse_bytes(given, "strategy.memory")


def test_sizes_are_shown_with_three_digits() -> None:
    assert [shown(count) for count in (0, 1023, 1024, 999 * 1024, 2**20, 2**30, 1000 * 2**30)] == [
        "0 bytes", "1023 bytes", "1 KiB", "999 KiB", "1 MiB", "1 GiB", "1,000 GiB",
    ]  # fmt: skip
