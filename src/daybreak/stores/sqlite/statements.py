"""The SQL of the store. `sql.insert_job` is the statement after `-- name: insert_job` in one of the files sql/*.sql;
`migrations` holds whole files."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Statements:
    """Named SQL texts, as attributes."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts
        vars(self).update(texts)  # plain attributes need no call, and every request uses a dozen statements

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"there is no statement named {name}")

    def names(self) -> list[str]:
        return sorted(self._texts)


def _files(package: str, folder: str) -> dict[str, str]:
    here = files(package).joinpath(folder)
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in here.iterdir()
        if file.name.endswith(".sql")
    }


def statements_in(package: str, folder: str) -> dict[str, str]:
    """The named statements of all files in a folder of a package."""
    found: dict[str, str] = {}
    for text in _files(package, folder).values():
        _, *parts = _NAME.split(text)
        for name, statement in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"two statements are named {name}"
            found[name] = statement.strip() + "\n"
    return found


sql = Statements(statements_in(__package__, "sql"))
migrations = Statements(_files(__package__, "migrations"))
