"""The forecast of a run, kept in its folder when the run is there, so that its report shows both."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.plan.forecast import Forecast


def keep_forecast(out: Path, forecast: "Forecast | None") -> None:
    """Write what was foretold beside the run that was made of it, and draw its report with both."""
    from weft.events import dumps
    from weft.format import atomic_write
    from weft.report import write_report
    from weft.report.sections.forecast import FILE
    from weft.train.saved.run_folder import holds_run

    if forecast is not None and holds_run(out):
        with suppress(OSError, WeftError):  # the disk may be what ended the run
            atomic_write(out / FILE, dumps(forecast.to_dict()).encode())
            write_report(out)
