"""The SQL of the store. `sql.load_jobs` is the statement that stands under `-- name: load_jobs` in one of sql/*.sql.

The files say `daybreak.` for the schema; another name is put in its place."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
# Signs that drivers take for parameters, or that end the body of a function: in a statement they are spelt by number.
_ODD: Final = re.compile(r"[%{}:$?\\]")


def quoted(name: str) -> str:
    """A name as SQL wants it, also one that is a word of SQL, like "user"."""
    text = name.replace('"', '""')
    if _ODD.search(text):
        return 'U&"' + _ODD.sub(lambda odd: f"\\{ord(odd[0]):04X}", text) + '"'
    return f'"{text}"'


def spelt(name: str) -> str:
    """A name as it stands inside of a text, to_regclass('name.meta'). Locks go by this text, and functions that were
    made long ago ask for the same locks: no name may ever be spelt in another way."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _in_text(name: str) -> str:
    """The beginning of a quoted text that begins with a name."""
    text = spelt(name).replace("'", "''")
    if _ODD.search(text):
        return "E'" + _ODD.sub(lambda odd: f"\\x{ord(odd[0]):02X}", text)
    return f"'{text}"


class Statements:
    def __init__(self, folder: str, schema: str = "daybreak") -> None:
        self._texts = {name: named(text, schema) for name, text in _texts(folder).items()}

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
    """The same statement for a schema of another name."""
    if schema == "daybreak":
        return text
    name = quoted(schema)
    return (
        text.replace("'daybreak.", f"{_in_text(schema)}.")
        .replace(" daybreak.", f" {name}.")
        .replace("(daybreak.", f"({name}.")
    )


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
