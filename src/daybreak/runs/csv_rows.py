"""The rows of a CSV file with a header: checked once, then read as often as needed."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from daybreak.core.errors import BadInput
from daybreak.core.units import counted


class CsvRows:
    """Rows of texts. Every row has a value for each column of the header; blank lines are skipped.

    The file may not change between the check and the last reading."""

    def __init__(self, path: str | PathLike[str], *, most: int) -> None:
        self._path = Path(path)
        self._stamp = self._current_stamp()
        self.columns = self._header()
        self._rows = 0
        for _ in self._read():
            self._rows += 1
            if self._rows > most:
                raise BadInput(f"{self._path} has more than {most:,} rows; split it into several sweeps")
        if not self._rows:
            raise BadInput(f"{self._path} has a header and no rows, so the sweep has no points")

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[list[str]]:
        self._check_unchanged()
        yield from self._read()
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        if self._current_stamp() != self._stamp:
            raise BadInput(f"{self._path} changed while its points were read; start the sweep again")

    def _current_stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _header(self) -> tuple[str, ...]:
        for _, cells in self._lines():
            names = tuple(cell.strip() for cell in cells)
            for place, name in enumerate(names, 1):
                if not name:
                    raise BadInput(
                        f"{self._path}: column {place} has no name; the first line of the file is its header"
                    )
                if names.count(name) > 1:
                    raise BadInput(f"{self._path}: two columns are named {name!r}; rename one of them")
                if ";" in name or "\t" in name:
                    raise BadInput(f"{self._path}: the columns must be separated by commas; the header is {name!r}")
            return names
        raise BadInput(f"{self._path} is empty; its first line must name the columns")

    def _read(self) -> Iterator[list[str]]:
        lines = self._lines()
        next(lines, None)
        for number, cells in lines:
            if len(cells) < len(self.columns):
                missing = self.columns[len(cells)]
                raise BadInput(f"{self._path}, line {number}: the row has no value for the column {missing!r}")
            if len(cells) > len(self.columns):
                raise BadInput(
                    f"{self._path}, line {number}: the row has {len(cells)} values, and the header names "
                    f"{counted(len(self.columns), 'column')}; put quotes around a value that contains a comma"
                )
            yield cells

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                reader: Any = csv.reader(file, strict=True)
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
        except csv.Error as error:
            raise BadInput(f"{self._path}, line {reader.line_num}: {error}") from None
        except UnicodeDecodeError:
            raise BadInput(f"{self._path} is not UTF-8 text; save it as UTF-8") from None
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> BadInput:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return BadInput(f"cannot read the points from {path}: {reason}")
