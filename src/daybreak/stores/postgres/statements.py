"""The SQL, one statement a file; `sql.load_jobs` is the text of sql/load_jobs.sql.

The files say `daybreak.` for the schema; another name is put in its place."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files


def quoted(name: str) -> str:
    """A name as SQL wants it."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


class Statements:
    def __init__(self, folder: str, schema: str = "daybreak") -> None:
        self._texts = {name: named(text, schema) for name, text in _texts(folder).items()}

    def __getattr__(self, name: str) -> str:
        try:
            return self._texts[name]
        except KeyError:
            raise AttributeError(f"there is no statement {name}.sql") from None

    def names(self) -> list[str]:
        return sorted(self._texts)

    def text(self, name: str) -> str:
        return self._texts[name]


def named(text: str, schema: str) -> str:
    """The same statement for a schema of another name."""
    if schema == "daybreak":
        return text
    name = quoted(schema)
    # Inside a quoted text, as in nextval('daybreak.seq'), a quote of the name is doubled.
    return (
        re.sub(r"'daybreak\.", lambda _: "'" + name.replace("'", "''") + ".", text)
        .replace(" daybreak.", f" {name}.")
        .replace("(daybreak.", f"({name}.")
    )


@cache
def _texts(folder: str) -> dict[str, str]:
    here = files(__package__).joinpath(folder)
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in here.iterdir()
        if file.name.endswith(".sql")
    }
