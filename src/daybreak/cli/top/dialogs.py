"""Questions of `top` that are answered with one key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen

from daybreak.cli.top.text_pane import TextPane
from daybreak.core.units import Priority

_LEVELS: Final = {priority.name[0].lower(): priority.value for priority in Priority}
WIDTH: Final = 60


class ConfirmDialog(ModalScreen[bool]):
    """Asks before jobs are changed. Only y confirms."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q,enter", "answer(False)", show=False),
    ]

    def __init__(self, question: str, lines: Sequence[str]) -> None:
        super().__init__()
        self.question = question
        self._lines = lines

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield TextPane(id="question")

    def on_mount(self) -> None:
        shown = [(self.question, "bold"), ("", ""), *((line, "") for line in self._lines), ("", "")]
        pane = self.query_one(TextPane)
        pane.styles.height = len(shown) + 1 + sum(len(line) // (WIDTH - 4) for line, _ in shown)
        pane.show([*shown, ("y  yes     n  no", "bold")])

    def action_answer(self, is_confirmed: bool) -> None:
        self.dismiss(is_confirmed)


class PriorityDialog(ModalScreen[int | None]):
    """Asks for a priority: the first letter of its name, or a digit."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", show=False)]

    def __init__(self, question: str, lines: Sequence[str]) -> None:
        super().__init__()
        self.question = question
        self._lines = lines

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield TextPane(id="question")

    def on_mount(self) -> None:
        levels = [(f"  {p.name[0].lower()}  {p.name.lower()} ({p.value})", "") for p in Priority]
        shown = [(self.question, "bold"), ("", ""), *levels, ("", ""), *((line, "") for line in self._lines)]
        pane = self.query_one(TextPane)
        pane.styles.height = len(shown) + 1
        pane.show([*shown, ("Press a letter, or 0 to 9. Esc leaves it as it is.", "")])

    def on_key(self, event: Key) -> None:
        character = event.character or ""
        if character in _LEVELS:
            self.dismiss(_LEVELS[character])
        elif character.isascii() and character.isdigit():
            self.dismiss(int(character))

    def action_leave(self) -> None:
        self.dismiss(None)
