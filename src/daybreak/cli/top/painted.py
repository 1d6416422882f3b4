"""Widgets that draw lines of plain text. Whatever they are given reaches the screen through `safe`: neither markup nor
control characters of a job's text mean anything here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from daybreak.cli.output import STYLES
from daybreak.core.text import safe

Part = tuple[str, str]  # a text and its style, such as "bold red"
Line = Sequence[Part]

STATE_STYLES: Final = {**STYLES, "cancelled": "", "removed": "", "stopped": ""}


@cache
def style_of(words: str) -> Style:
    return Style.parse(words)


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns; an ellipsis stands for the rest."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…" if width > 0 else ""


def strip_of(line: Line, width: int, fill: str = "") -> Strip:
    """One line of the screen, exactly `width` columns wide."""
    segments = []
    room = width
    for text, style in line:
        whole = safe(text)
        shown = cut(whole, room)
        room -= cell_len(shown)
        segments.append(Segment(shown, style_of(f"{fill} {style}".strip())))
        if shown != whole:
            break
    segments.append(Segment(" " * room, style_of(fill)))
    return Strip(segments, width)


class Painted(Widget):
    """A widget whose lines come from `paint`. `fill` is the style of the whole line."""

    def paint(self, y: int, width: int) -> tuple[Line, str]:
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        line, fill = self.paint(y, self.size.width)
        return strip_of(line, self.size.width, fill)


class Bar(Painted):
    """A few lines of text, such as a title. The last part of a line that has a part `""` before it is aligned to the
    right."""

    def __init__(self, *, id: str | None = None, fill: str = "") -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._fill = fill

    def show(self, *lines: Line) -> None:
        if list(lines) == self._lines:
            return  # nothing to send to a terminal that may be far away
        self._lines = list(lines)
        self.styles.height = max(len(lines), 1)
        self.refresh()

    @property
    def text(self) -> str:
        return "\n".join("".join(text for text, _ in line) for line in self._lines)

    def paint(self, y: int, width: int) -> tuple[Line, str]:
        if y >= len(self._lines):
            return (), self._fill
        return _spread(self._lines[y], width), self._fill


def _spread(line: Line, width: int) -> Line:
    if ("", "") not in line:
        return line
    at = list(line).index(("", ""))
    used = sum(cell_len(text) for text, _ in line)
    return (*line[:at], (" " * max(width - used, 2), ""), *line[at + 1 :])
