"""The sections of the page, each a function `section(run) -> Section | None`.

None: the section does not concern this run. A Section with a note and no body: it would, but the run folder
lacks what it needs. Adding one is a function here and its name in `weft.report.page.SECTIONS`.
"""
