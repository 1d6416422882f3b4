"""Keeps rows aside until all of their columns are known: in memory at first, then in a temporary file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from tempfile import SpooledTemporaryFile
from typing import Any, Final, Literal

Kind = Literal["none", "bool", "int", "float", "instant", "text"]

_IN_MEMORY: Final = 8 * 2**20
_INT64: Final = 2**63


class RowSpool:
    """Rows with plain values (None, bool, int, float, text), and each column's kind. An instant is kept as ISO text."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.kinds: dict[str, Kind] = {}
        # The file is removed when this object is: nothing is left over, however the program ends.
        self._file = SpooledTemporaryFile(_IN_MEMORY, mode="w+b")  # noqa: SIM115 - read later, then closed
        try:
            for row in rows:
                self._write(row)
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[list[Any]]:
        """Each row's values, one per column."""
        self._file.seek(0)
        columns = len(self.kinds)
        for line in self._file:
            cells = json.loads(line)
            cells.extend([None] * (columns - len(cells)))
            yield cells

    def close(self) -> None:
        self._file.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        cells = {name: self._plain(name, value) for name, value in row.items()}
        self._file.write(json.dumps([cells.get(name) for name in self.kinds]).encode() + b"\n")

    def _plain(self, name: str, value: Any) -> Any:
        kind, plain = plain_value(value)
        self.kinds[name] = _common(self.kinds.get(name, "none"), kind)
        return plain


def plain_value(value: Any) -> tuple[Kind, Any]:
    """A value as a table keeps it: durations as seconds, lists, dicts and other objects as text."""
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return "none", None
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return ("int" if -_INT64 <= value < _INT64 else "text"), int(value)
    if isinstance(value, float):
        return "float", float(value)
    if isinstance(value, str):
        return "text", str(value)
    if isinstance(value, timedelta):
        return "float", value.total_seconds()
    if isinstance(value, datetime):
        return ("text" if value.tzinfo is None else "instant"), value.isoformat()
    if isinstance(value, date):
        return "text", value.isoformat()
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a scalar of numpy
        return plain_value(value.item())
    if isinstance(value, (list, tuple, dict)):
        return "text", json.dumps(value, default=str, ensure_ascii=False)
    return "text", str(value)


def typed_value(kind: Kind, value: Any) -> Any:
    """A value of the spool in the type of its column."""
    if value is None:
        return None
    if kind == "float":
        return float(value)
    if kind == "instant":
        return datetime.fromisoformat(value).astimezone(UTC)
    if kind == "text" and not isinstance(value, str):
        return cell_text(value)
    return value


def cell_text(value: Any) -> str:
    """A plain value as the text of a CSV cell. Reading it back as a number gives the same number."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _common(one: Kind, other: Kind) -> Kind:
    """The kind of a column that has values of both kinds."""
    if other in {one, "none"}:
        return one
    if one == "none":
        return other
    return "float" if {one, other} == {"int", "float"} else "text"
