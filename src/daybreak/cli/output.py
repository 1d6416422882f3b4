"""Prints text, tables, JSON and notes. Callers pass text that is already escaped with `safe`, except where noted."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from daybreak.api.views.scalars import finite
from daybreak.cli import errors
from daybreak.core.text import safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP: Final = "  "
MIN_WIDTH: Final = 40  # of a column that `gives`; if less is left, it moves to its own line
STYLES: Final = {
    "completed": "green", "failed": "red", "cancelled": "dim", "running": "cyan", "suspended": "yellow",
    "live": "green", "gone": "red", "paused": "yellow", "stopping": "yellow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. On a narrow terminal the column that `gives` is shortened, or moves to its own line if too
    little would be left of it. Then columns with a `drop` are left out, the highest number first. All other columns are
    printed in full: a shortened id would be useless."""

    title: str
    gives: bool = False
    drop: int = 0
    right: bool = False


def say(text: str = "") -> None:
    """Print a line on stdout."""
    click.echo(text, color=errors.color())


def note(text: str) -> None:
    """Print a note for the user on stderr, so that a program that reads stdout does not see it."""
    click.echo(f"{click.style('Note:', fg='yellow')} {text}", err=True, color=errors.color())


def tell(text: str) -> None:
    """Print a line on stderr."""
    click.echo(text, err=True, color=errors.color())


def is_person() -> bool:
    """Whether a person can answer a question: stdin and stdout are terminals."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


# -- JSON --------------------------------------------------------------------------------------------------------------


def say_json(value: object) -> None:
    click.echo(as_json(value))


def as_json(value: object, *, indent: int | None = 2) -> str:
    """Valid JSON in which unprintable characters are escaped, so that a terminal can show it."""
    text = json.dumps(finite(value), ensure_ascii=False, indent=indent, allow_nan=False, default=str)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    # Unprintable characters occur only inside JSON strings, where an escape means the same character.
    return json.dumps(char)[1:-1] if ord(char) > 0x7E else f"\\u{ord(char):04x}"


# -- tables ------------------------------------------------------------------------------------------------------------


def console(*, err: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 - importing rich takes longer than most commands

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled in `errors`; rich would exit by itself

    # No markup and no emoji codes: text from users may contain them by chance.
    return Pipe(stderr=err, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    out = console()
    for line in table_lines(columns, rows, out.width if out.is_terminal else None):
        out.print(line)


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[Text]:
    """A table as lines, without a frame. Columns that are empty in every row are left out."""
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    widths = {i: max(cell_len(columns[i].title), *(cell_len(row[i]) for row in rows)) for i in shown}
    below = None if width is None else _fit(columns, shown, widths, width)
    lines = [Text(GAP.join(_cell(columns[i].title, widths[i], columns[i].right) for i in shown).rstrip(), "bold")]
    for row in rows:
        line = Text()
        for i in shown:
            line.append(_cell(row[i], widths[i], columns[i].right), STYLES.get(row[i], ""))
            line.append(GAP)
        line.rstrip()
        lines.append(line)
        if below is not None and width is not None and row[below]:
            lines.append(Text(GAP * 2 + _cell(row[below], width - 2 * len(GAP)).rstrip(), "dim"))
    return lines


def _cell(text: str, width: int, right: bool = False) -> str:
    """The text, padded or shortened to exactly `width` columns of the terminal."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) > width:
        return set_cell_size(text, max(width - 1, 0)) + "…"
    room = " " * (width - cell_len(text))
    return room + text if right else text + room


def _fit(columns: Sequence[Column], shown: list[int], widths: dict[int, int], width: int) -> int | None:
    """Shorten and drop columns until the table fits. Returns the column that moves to its own line, if any."""

    def excess() -> int:
        return sum(widths[i] for i in shown) + len(GAP) * (len(shown) - 1) - width

    below = None
    giving = next((i for i in shown if columns[i].gives), None)
    if giving is not None and excess() > 0:
        if widths[giving] - excess() >= MIN_WIDTH:
            widths[giving] -= excess()
        else:
            shown.remove(below := giving)
    for i in sorted(shown, key=lambda i: -columns[i].drop):
        if excess() <= 0 or not columns[i].drop:
            break
        shown.remove(i)
    return below


def say_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line. Pairs with an empty value are left out."""
    from rich.text import Text  # noqa: PLC0415

    pairs = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in pairs), default=0)
    out = console()
    for name, value in pairs:
        line = Text(f"{name:<{width}}", "dim")
        line.append(GAP)
        line.append(value.replace("\n", "\n" + " " * (width + len(GAP))), STYLES.get(value, ""))
        out.print(line)


def heading(text: str) -> None:
    from rich.text import Text  # noqa: PLC0415

    console().print(Text(safe(text), "bold"))
