"""Load by link before and after a deal, and its picture."""

import numpy as np
import pytest

from weft.comm.topology import LinkMap
from weft.plan.dealing import Dealing
from weft.plan.link_picture import draw_links
from weft.plan.wires import Wires
from weft.sizes import shown


def racks() -> LinkMap:
    """Return four workers in two racks of two machines, with a slow link between racks."""
    return Wires(4, 1, 100.0, 0.0, inside=1e3, inside_latency=0.0, rack=2, uplink=10.0).links()


def crossed() -> np.ndarray:
    """Return traffic of parts of which 0 and 2, and 1 and 3, talk much."""
    traffic = np.zeros((4, 4))
    traffic[0, 2] = traffic[2, 0] = traffic[1, 3] = traffic[3, 1] = 500.0
    traffic[0, 1] = traffic[1, 0] = 20.0
    return traffic


def test_those_who_talk_much_share_a_rack_and_the_bound_is_reached() -> None:
    dealing = Dealing.of(crossed(), racks())
    place = {part: worker // 2 for part, worker in enumerate(dealing.chosen)}
    assert (place[0], place[1]) == (place[2], place[3])
    told = dealing.to_dict()
    assert told["busiest_seconds_in_order"] == 100.0
    # What remains between racks is 2 s; the links of the machines now take 5.2 s.
    assert told["busiest_seconds"] == pytest.approx(5.2)
    assert 0 < told["bound_seconds"] <= told["busiest_seconds"]
    assert {each["name"]: each["bytes"] for each in told["links"]}["rack 0 up"] == 20.0
    assert "100.00 s of an epoch with parts in order, 5.20 s as dealt (machine" in dealing.told()


def test_the_picture_has_a_row_a_link_and_the_bound() -> None:
    dealing = Dealing.of(crossed(), racks())
    drawn = draw_links(dealing)
    for name, *_ in dealing.rows():
        assert f">{name}</text>" in drawn
    assert (
        f"<title>rack 0 up: {shown(1000)} in order, {shown(20)} as dealt, {shown(10)} a second</title>"
        in drawn
    )
    assert f"<title>{dealing.bound:.3g} s</title>" in drawn


def test_nothing_crosses_links_of_parts_that_read_nothing() -> None:
    dealing = Dealing.of(np.zeros((4, 4)), racks())
    assert (dealing.chosen, dealing.bound, dealing.told()) == ([0, 1, 2, 3], 0.0, "nothing crosses a link")
    assert draw_links(dealing).startswith("<svg")
