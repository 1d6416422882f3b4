"""A text that can be scrolled, such as a log. It follows its end until the reader scrolls up."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import chop_cells
from textual.binding import Binding, BindingType

from daybreak.cli.top.painted import Line, Painted, Part
from daybreak.core.text import safe


class TextPane(Painted, can_focus=True):
    """Lines of text, each with a style. Long lines are wrapped; nothing is cut."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "move_page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "move_page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]

    def __init__(
        self,
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        follows: bool = False,
        hangs: int = 0,
    ) -> None:
        """With `follows`, the end is shown until the reader scrolls up. Wrapped lines are indented by `hangs`."""
        super().__init__(id=id)
        self._hangs = hangs
        self.follows = follows
        self._starts_at_end = follows
        self._parts: list[Part] = []
        self._wrapped: list[Part] = []
        self._width = 0
        self._top = 0

    @property
    def text(self) -> str:
        return "\n".join(text for text, _ in self._parts)

    def show(self, parts: Sequence[Part]) -> None:
        """Show these lines. The place that is read stays in view."""
        if list(parts) != self._parts:
            self._parts = list(parts)
            self._width = 0
            self._wrap()

    def on_resize(self) -> None:
        self._wrap()

    def _wrap(self) -> None:
        width = max(self.size.width, 1)
        if width != self._width:
            self._width = width
            self._wrapped = [
                (line, style) for text, style in self._parts for line in _wrapped(text, width, self._hangs)
            ]
        if self.follows:
            self._top = self._last
        self._top = max(min(self._top, self._last), 0)
        self.refresh()

    @property
    def _last(self) -> int:
        return max(len(self._wrapped) - self.size.height, 0)

    def action_move(self, by: int) -> None:
        self._top = max(min(self._top + by, self._last), 0)
        self.follows = self._starts_at_end and self._top == self._last
        self.refresh()

    def action_move_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 1, 1))

    @property
    def is_long(self) -> bool:
        """Whether the text does not fit on the screen."""
        return self._last > 0

    def paint(self, y: int, width: int) -> tuple[Line, str]:  # noqa: ARG002 - the lines have that width
        n = self._top + y
        return ([self._wrapped[n]] if n < len(self._wrapped) else ()), ""


def _wrapped(text: str, width: int, hangs: int) -> list[str]:
    """One line in pieces that fit. It breaks at spaces, with the indent of the line, or anywhere in a long word."""
    text = safe(text)
    if len(text) <= width // 2:
        return [text]
    indent = " " * min(max(len(text) - len(text.lstrip(" ")), hangs), width // 2)
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False
    )
    return [piece for line in lines for piece in chop_cells(line, width)] or [""]
