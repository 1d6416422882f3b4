"""The line in which a filter is written."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from daybreak.cli.top.filter_words import MAX_LENGTH


class FilterBar(Input):
    """Enter applies the filter, Esc leaves it as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    class Left(Message):
        """The line was left without a change."""

    def __init__(self) -> None:
        super().__init__(
            id="line",
            placeholder="state=failed queue=mail task=send since=1d, or words to search for",
            max_length=MAX_LENGTH,
            compact=True,
            select_on_focus=False,
        )

    def open(self, line: str) -> None:
        self.value = line
        self.cursor_position = len(line)
        self.display = True
        self.focus()

    def action_leave(self) -> None:
        self.post_message(self.Left())
