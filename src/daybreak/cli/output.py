"""Tables, JSON and notes. Everything printed here has been made safe for terminals before or is made so here."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from daybreak.api.views.scalars import finite
from daybreak.cli import errors
from daybreak.cli.text import safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP: Final = "  "
LEAST: Final = 40  # a column that gives way keeps so much, or goes below
STYLES: Final = {
    "completed": "green", "failed": "red", "cancelled": "dim", "running": "cyan", "suspended": "yellow",
    "live": "green", "gone": "red", "paused": "yellow", "stopping": "yellow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """Where the terminal is narrow, the column that `gives` is shortened, and if little would be left of it, it goes to
    a line of its own; then those with a `drop` are left out, the highest first. Everything else stands in full: an id
    that is cut is no id."""

    title: str
    gives: bool = False
    drop: int = 0
    right: bool = False


def say(text: str = "") -> None:
    click.echo(text, color=errors.color())


def note(text: str) -> None:
    """A word to the person, not to the program that reads our output."""
    click.echo(f"{click.style('Note:', fg='yellow')} {text}", err=True, color=errors.color())


def tell(text: str) -> None:
    """A line on stderr, beside what the program prints."""
    click.echo(text, err=True, color=errors.color())


def is_person() -> bool:
    """Whether someone sits there who can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


# -- JSON --------------------------------------------------------------------------------------------------------------


def say_json(value: object) -> None:
    click.echo(as_json(value))


def as_json(value: object, *, indent: int | None = 2) -> str:
    """Valid JSON, whatever is in it, that a terminal can show too."""
    text = json.dumps(finite(value), ensure_ascii=False, indent=indent, allow_nan=False, default=str)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    # Unprintable characters can only stand inside JSON's strings, where this is another spelling of the same.
    return json.dumps(char)[1:-1] if ord(char) > 0x7E else f"\\u{ord(char):04x}"


# -- tables ------------------------------------------------------------------------------------------------------------


def console(*, err: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 - takes longer to load than most commands to run

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # told as anywhere else, not by an exit of its own

    # Markup and emoji codes are words of users here, not ours.
    return Pipe(stderr=err, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    out = console()
    for line in table_lines(columns, rows, out.width if out.is_terminal else None):
        out.print(line)


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[Text]:
    """A table as lines: plain columns, no frame. Columns that are empty throughout are left out."""
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
    """A text that takes exactly so many columns of the terminal."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) > width:
        return set_cell_size(text, max(width - 1, 0)) + "…"
    room = " " * (width - cell_len(text))
    return room + text if right else text + room


def _fit(columns: Sequence[Column], shown: list[int], widths: dict[int, int], width: int) -> int | None:
    """Take from what may give way until the table fits; answers which column goes below the line, if one does."""

    def excess() -> int:
        return sum(widths[i] for i in shown) + len(GAP) * (len(shown) - 1) - width

    below = None
    giving = next((i for i in shown if columns[i].gives), None)
    if giving is not None and excess() > 0:
        if widths[giving] - excess() >= LEAST:
            widths[giving] -= excess()
        else:
            shown.remove(below := giving)
    for i in sorted(shown, key=lambda i: -columns[i].drop):
        if excess() <= 0 or not columns[i].drop:
            break
        shown.remove(i)
    return below


def say_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values below one another; empty values are left out."""
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
