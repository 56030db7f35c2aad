"""Pictures of messages: nothing lies on something else, values run downwards, names are escaped."""

import re

from weft.report.flow import Box, flow

BOXES = [
    Box("source", "a", "20 x 4", ()),
    Box("destination", "b", "10 x 4", ()),
    Box("edge", "add", "100 x 4", (0, 1), (0,)),
    Box("edge", "mul <b>", "100 x 4", (0, 1), (0,)),
    Box("destination", "out", "10 x 4", (2, 3)),
]


def boxes(svg: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r'<rect class="box[^"]*" x="(\d+)" y="(\d+)"', svg)]


def test_boxes_lie_apart_in_their_lanes_and_below_what_they_take() -> None:
    places = boxes(flow(BOXES, label="five"))
    assert len(set(places)) == len(BOXES)
    assert places[2][0] == places[3][0] != places[0][0]
    for box, (_, y) in zip(BOXES, places):
        assert all(places[each][1] < y for each in box.inputs)


def test_a_kernel_is_drawn_around_its_operators() -> None:
    svg = flow(BOXES, label="five")
    found = re.search(r'<rect class="kernel" x="(-?\d+)" y="(-?\d+)" width="(\d+)" height="(\d+)"', svg)
    assert found is not None
    x, y, width, height = map(int, found.groups())
    inside = [x < left < x + width and y < top < y + height for left, top in boxes(svg)]
    assert inside == [False, False, True, True, False]
    assert "kernel 1" in svg


def test_names_are_plain_text() -> None:
    assert "mul &lt;b&gt;" in flow(BOXES, label="<i>")
    assert "<i>" not in flow(BOXES, label="<i>")
