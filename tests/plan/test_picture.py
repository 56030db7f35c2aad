"""The picture of a plan: a mark for each configuration, and the front of those that nothing beats."""

from dataclasses import replace
from xml.etree import ElementTree

from plan_machine import machine

from weft.plan.forecast import Forecast
from weft.plan.picture import draw, front
from weft.plan.planning import Plan


def point(seconds: float, memory: int, dollars: float | None = None) -> Forecast:
    held = dict.fromkeys(Forecast.__dataclass_fields__, 0)
    values = {"strategy": "a<b", "exchange": None, "options": {}, "workers": 2, "exact": True}
    told = Forecast(**{**held, **values})  # type: ignore[arg-type]
    return replace(told, epoch_seconds=seconds, peak_memory_bytes=memory, dollars_per_epoch=dollars)


def test_the_front_is_what_nothing_beats() -> None:
    held = [point(1, 30), point(2, 20), point(3, 25), point(4, 10)]
    assert front(held, lambda each: each.peak_memory_bytes) == [held[0], held[1], held[3]]


def test_it_is_a_picture_with_a_panel_for_dollars_where_there_are_prices() -> None:
    held = [point(1, 30, 0.1), point(2, 20, 0.05), point(3, 25, 0.2)]
    for priced, circles in ((True, 6), (False, 3)):
        shown = held if priced else [replace(each, dollars_per_epoch=None) for each in held]
        picture = ElementTree.fromstring(draw(Plan({}, shown, [], machine())))
        assert len(picture.findall(".//{*}circle")) == circles
