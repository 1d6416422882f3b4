"""The rows of `daybreak sweep`, as people read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from daybreak.core.errors import BadInput
from daybreak.runs.grid_text import parse_number
from daybreak.worker.child.command_template import CommandTemplate

_EXIT_CODE: Final = re.compile(r" ended with exit code (\d+)")

Row = dict[str, Any]


def readable_rows(columns: Iterable[str]) -> Callable[[Row], Row]:
    """A function that puts a row in order: first the values, as numbers where they are some; then the command with
    these values, its exit code, also if it failed, and its files."""
    names = list(columns)

    def readable(row: Row) -> Row:
        values = {name: str(row[name]) for name in names if name in row}
        found: Row = {"point": row.get("point")}
        found.update({name: parse_number(text) for name, text in values.items()})
        found["command"] = _filled(row, values)
        found["exit_code"] = _exit_code(row)
        if isinstance(row.get("files"), dict):
            found["files"] = list(row["files"])
            found["sha256"] = [file.get("sha256") for file in row["files"].values() if isinstance(file, dict)]
        rest = {name: value for name, value in row.items() if name not in found and name != "how"}
        return {**found, **rest}

    return readable


def _filled(row: Row, values: dict[str, str]) -> str:
    how = row.get("how")
    is_shell = isinstance(how, dict) and bool(how.get("shell"))
    try:
        return CommandTemplate(str(row.get("command")), shell=is_shell).shown(values)
    except (BadInput, KeyError):  # a job that was put into the run by hand
        return str(row.get("command"))


def _exit_code(row: Row) -> int | None:
    if isinstance(row.get("exit_code"), int):
        return int(row["exit_code"])
    found = _EXIT_CODE.search(str(row.get("error") or ""))
    return int(found[1]) if found else None
