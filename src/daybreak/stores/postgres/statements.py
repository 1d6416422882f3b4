"""The SQL of the store. `sql.load_jobs` is the statement under `-- name: load_jobs` in one of sql/*.sql.

The files write `daybreak.` for the schema, which is replaced by the schema's name."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
# Characters that drivers take for parameters, or that end a function's body: in a statement they are escaped by number.
_SPECIAL: Final = re.compile(r"[%{}:$?\\]")


def quoted(name: str) -> str:
    """A quoted identifier; needed for SQL keywords such as "user"."""
    text = name.replace('"', '""')
    if _SPECIAL.search(text):
        return 'U&"' + _SPECIAL.sub(lambda found: f"\\{ord(found[0]):04X}", text) + '"'
    return f'"{text}"'


def spelt(name: str) -> str:
    """A name inside a string literal, as in to_regclass('name.meta'). Advisory locks hash this text, and SQL functions
    of older schemas take the same locks: the spelling of a name must never change."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _in_text(name: str) -> str:
    """The start of a string literal that begins with a name."""
    text = spelt(name).replace("'", "''")
    if _SPECIAL.search(text):
        return "E'" + _SPECIAL.sub(lambda found: f"\\x{ord(found[0]):02X}", text)
    return f"'{text}"


class Statements:
    """The statements of one folder as attributes, for one schema."""

    def __init__(self, folder: str, schema: str = "daybreak") -> None:
        self._texts = _texts_for(folder, schema)

    def __getattr__(self, name: str) -> str:
        try:
            return self._texts[name]
        except KeyError:
            raise AttributeError(f"there is no statement named {name}") from None

    def names(self) -> list[str]:
        return sorted(self._texts)

    def text(self, name: str) -> str:
        return self._texts[name]


def named(text: str, schema: str) -> str:
    """The statement for a schema of this name."""
    if schema == "daybreak":
        return text
    name = quoted(schema)
    return (
        text.replace("'daybreak.", f"{_in_text(schema)}.")
        .replace(" daybreak.", f" {name}.")
        .replace("(daybreak.", f"({name}.")
    )


@lru_cache(maxsize=16)
def _texts_for(folder: str, schema: str) -> dict[str, str]:
    return {name: named(text, schema) for name, text in _texts(folder).items()}


@cache
def _texts(folder: str) -> dict[str, str]:
    here = files(__package__).joinpath(folder)
    texts = {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in here.iterdir()
        if file.name.endswith(".sql")
    }
    return texts if folder == "migrations" else _statements(texts)


def _statements(texts: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts.values():
        _, *parts = _NAME.split(text)
        for name, statement in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"two statements are named {name}"
            found[name] = statement.strip() + "\n"
    return found
