"""One column per epoch, or the mean of several, and a ceiling that one heavy epoch does not set."""

from weft.report.columns import NUM_COLUMNS, epoch_columns


def drawn(*values: float, layers: int = 1) -> str:
    numbers = [*range(1, len(values) + 1)]
    held = [(f"phase {place}", f"t{place}", values) for place in range(1, layers + 1)]
    return epoch_columns(numbers, held, title="Seconds", text="Seconds by phase;")


def test_the_median_epoch_is_told_to_those_who_do_not_see_the_chart() -> None:
    assert "Seconds by phase; the median epoch: 2.00 s." in drawn(1.0, 2.0, 4.0)
    assert "together" not in drawn(1.0, 2.0)
    assert "the median epoch: 4.00 s." in drawn(1.0, 2.0, 4.0, layers=2)
    assert "together" in drawn(1.0, 2.0, layers=2)


def test_many_epochs_are_drawn_as_means_and_it_is_said() -> None:
    many = drawn(*[1.0] * (2 * NUM_COLUMNS))
    assert "Each column is the mean of 2 epochs." in many
    assert "mean of" not in drawn(*[1.0] * NUM_COLUMNS)


def test_a_heavy_epoch_leaves_the_chart_and_is_told() -> None:
    usual = [1.0] * 39
    assert "The tallest column leaves the chart: 50.0 s." in drawn(50.0, *usual)
    assert "leaves the chart" not in drawn(2.0, *usual)
    assert "leaves the chart" not in drawn(50.0, *usual[:6]), "of few epochs all are shown"
