"""A screen of `top` that is read from the store again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from daybreak.cli.top.painted import Bar, Line
from daybreak.client.client import Client
from daybreak.core.text import local

if TYPE_CHECKING:
    from daybreak.cli.top.app import TopApp


class DataScreen(Screen[str | None]):
    """A title, what `body` makes, a line for messages, and the keys. `read` gets the data, `show` draws it."""

    AUTO_FOCUS = "RowTable, TextPane"
    KEYS: tuple[tuple[tuple[str, str], ...], ...] = ()  # lines of keys and what each does

    @property
    def top(self) -> TopApp:
        return cast("TopApp", self.app)

    def compose(self) -> ComposeResult:
        yield Bar(id="title", fill="reverse")
        yield from self.body()
        yield Bar(id="status")
        yield Bar(id="keys")

    def on_mount(self) -> None:
        self._show_keys()
        self.show()

    def on_resize(self) -> None:
        self._show_keys()
        self.show()

    def _show_keys(self) -> None:
        narrow, wide = [[key_line(line, gap) for line in self.KEYS] for gap in (" ", "  ")]
        longest = max(sum(len(text) for text, _ in line) for line in wide)
        self.bar("keys").show(*(wide if longest <= self.size.width else narrow))

    def on_screen_resume(self) -> None:
        self.top.hurry()

    def bar(self, name: str) -> Bar:
        return self.query_one(f"#{name}", Bar)

    def body(self) -> Iterable[Widget]:
        raise NotImplementedError

    async def read(self, client: Client) -> None:
        """Read what the screen shows. May raise any error of the store."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw what was read last."""
        raise NotImplementedError

    def show_title(self, *parts: str) -> None:
        left = [(" daybreak top ", "bold"), *((f" {part} ", "") for part in parts)]
        self.bar("title").show([*left, ("", ""), (f"{local(self.top.now)[11:]} ", "")])

    def show_status(self, hint: str = "") -> None:
        """The trouble with the store, else what happened last, else a hint."""
        self.bar("status").show(self._status(hint))

    def _status(self, hint: str) -> Line:
        if self.top.trouble is not None:
            return [(" ! ", "bold red"), (self.top.trouble, "red")]
        if self.top.message:
            return [(f" {self.top.message}", "bold")]
        return [(f" {hint}", "")]


def key_line(keys: Iterable[tuple[str, str]], gap: str = "  ") -> Line:
    """Keys and what they do, with a gap between them."""
    parts: list[tuple[str, str]] = []
    for key, label in keys:
        parts += [(gap if parts else " ", ""), (key, "reverse"), (f" {label}", "")]
    return parts
