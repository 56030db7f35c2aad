"""What the run was made of: recipe, software, machine, what it warned of, and how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from weft.config import to_toml
from weft.report import words
from weft.report.markup import Section, code, facts, fold, panel, panels
from weft.report.read import Run


def recipe(run: Run) -> Section | None:
    """The resolved recipe, a panel a section, and the whole as TOML."""
    held = run.table("recipe")
    # What the recipe met, kept there so that a resume can tell whether it still meets the same; no setting.
    held.pop("graph", None)
    if not held:
        return Section("Recipe", note="run.json holds no recipe")
    tables = {str(name): table for name, table in held.items() if isinstance(table, Mapping) and table}
    loose = {str(name): value for name, value in held.items() if not isinstance(value, Mapping)}
    shown = [panel(f"[{name}]", facts(_lines(table))) for name, table in tables.items()]
    if loose:
        shown.insert(0, panel("Settings", facts(_lines(loose))))
    body = panels(*shown) + fold("The recipe as TOML", code(to_toml(tables)))
    return Section("Recipe", f'<div class="dense">{body}</div>', lead=_reason(run))


def _reason(run: Run) -> str:
    start = run.last("start")
    chosen = f" Strategy {start.get('strategy')}: {start['why']}." if start.get("why") else ""
    asked = run.table("recipe", "task").get("name", "auto")
    suits = f" Task {run.task}: what its graph suggests." if asked == "auto" else ""
    return f"The settings of the run.{suits}{chosen}"


def _lines(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(key), words.toml(value)) for key, value in table.items()]


def environment(run: Run) -> Section | None:
    """Versions and machine."""
    versions, machine = run.table("versions"), run.table("machine")
    if not versions and not machine:
        return Section("Environment", note="run.json holds neither versions nor machine")
    body = panels(
        panel("Software", facts(_flat(versions))) if versions else "",
        panel("Machine", facts(_flat(machine))) if machine else "",
    )
    return Section("Environment", f'<div class="dense">{body}</div>', lead=_core(machine))


def _core(machine: Mapping[str, Any]) -> str:
    used = machine.get("native_core")
    if not isinstance(used, bool):
        return ""
    return (
        "Kernels ran on the native core."
        if used
        else "Kernels ran on the reference, without the native core."
    )


def _flat(held: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in held.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key} ")
        else:
            yield prefix + str(key).replace("_", " "), _told(str(key), value)


def _told(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("bytes"):
        return words.size(words.number(value))
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return words.NOTHING if value is None else str(value)


def remarks(run: Run) -> Section | None:
    """What went wrong, what the run warned of, and what was wrong with its files."""
    told: dict[str, int] = {}
    listed = run.meta.get("warnings")
    texts = [str(run.meta["error"])] if run.meta.get("error") else []
    texts += [str(item) for item in listed] if isinstance(listed, list) else []
    texts += [str(event.get("message", event)) for event in run.all("warning")]
    texts += [f"The run was continued after epoch {event.get('epoch')}." for event in run.all("resume")]
    for text in [*texts, *run.notes]:
        told[text] = told.get(text, 0) + 1
    if not told:
        return None
    items = [text if times == 1 else f"{text} ({words.count(times)} times)" for text, times in told.items()]
    body = "".join(f"<li>{escape(item)}</li>" for item in items)
    return Section("Remarks", f'<ul class="warnings">{body}</ul>')


def again(run: Run) -> Section | None:
    """The command that made the run, and how to draw the page again."""
    given = run.meta.get("command") or run.last("start").get("command")
    command = (
        shlex.join(str(word) for word in given) if isinstance(given, list) else str(given) if given else ""
    )
    # As the user wrote it, so that it works from where the run was started.
    redraw = f"weft report {shlex.quote(str(run.summary.get('out') or run.folder))}"
    body = panels(
        panel("The command of this run", code(command)) if command else "",
        panel("Draw this page again from its events", code(redraw)),
    )
    return Section("Again", body)
