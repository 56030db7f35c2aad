"""Tasks of pairs: what is refused names the option of the recipe."""

from typing import Any

import pytest
from rated import rated

import weft
from weft.errors import InputError
from weft.tasks.choose import TaskChoice


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "a b c"}, r"^task\.target: no relation 'a b c'"),
        ({"split": {"by": "given"}}, r"^task\.split: by='given' needs edge data 'split'"),
        ({"split": {"val": 0.9, "test": 0.2}}, r"^task\.split: val and test are shares"),
        ({"negatives": {"name": "uniform", "alpha": 0.5}}, r"^task\.negatives: alpha goes with"),
        ({"evaluate": {"name": "hard"}}, r"^task\.evaluate: 'hard', and it alone, needs pool"),
        ({"name": "edge_classification", "label": "colour"}, r"^task\.label: .*no edge data 'colour'"),
    ],
)
def test_what_is_refused_names_the_option(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        weft.train(rated(), "sage", epochs=1, task={"name": "link_prediction", **options})


def test_tasks_of_edges_share_the_options_of_pairs_and_of_classes_or_numbers() -> None:
    section = {"label": "l", "edge_data": ["a"], "width": 3, "hide": "disjoint", "share": 0.5}
    for name, own in (
        ("edge_classification", {"smoothing": 0.1}),
        ("edge_regression", {"standardise": False}),
    ):
        task: Any = TaskChoice.of({"name": name, **section, **own}).make(rated())
        assert (task.label, task.edge_data, task.node_width, task.share) == ("l", ["a"], 3, 0.5)
    assert task.numbers.standardise is False
    with pytest.raises(InputError, match=r"task\.share: expected a number > 0 and < 1"):
        TaskChoice.of({"name": "edge_regression", "share": 1.5})
    with pytest.raises(InputError, match=r"unknown key task\.smoothing"):
        TaskChoice.of({"name": "edge_regression", "smoothing": 0.1})
