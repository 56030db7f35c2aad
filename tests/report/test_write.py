"""The page of a run on a disk that has no room for it."""

from pathlib import Path

import pytest
from tables import small_disk

from weft.errors import FormatError
from weft.report import write_report

from . import samples


def test_a_full_disk_is_one_line_and_leaves_no_page(tmp_path: Path) -> None:
    run = samples.write_run(tmp_path / "run", samples.meta(), samples.events(20))
    with small_disk(tmp_path / "disk", "size=4k") as disk:
        with pytest.raises(FormatError, match="No space left on device") as raised:
            write_report(run, disk / "page.html")
        assert "\n" not in str(raised.value)
        assert list(disk.iterdir()) == []
