"""The keys of `top`."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from daybreak.cli.top.data_screen import key_line
from daybreak.cli.top.painted import Bar, Part
from daybreak.cli.top.text_pane import TextPane

KEYS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "Look": (
        ("arrows, PgUp, PgDn", "move; the selected job stays selected when the list changes"),
        ("Enter", "open a job; in a job, the log of an attempt"),
        ("l", "the log of a job, followed while it runs"),
        ("w", "why a job waits, and what to do"),
        ("o", "queues and workers"),
        ("1 to 6, Left, Right", "all, waiting, running, failed, completed, cancelled jobs"),
        ("/", "filter: state=failed queue=mail task=send owner=ann since=1d, or any words"),
        ("[ and ]", "the page before, and the next one"),
        ("y", "copy the id of the job"),
        ("Esc", "back; in the list, take back marks, then the filter"),
    ),
    "Change the selected job, or all marked jobs": (
        ("Space", "mark a job, or take the mark back"),
        ("a", "mark all jobs of the page"),
        ("c", "cancel: a waiting job ends, a running job is asked to stop"),
        ("r", "retry: run a job again that has ended"),
        ("s and u", "suspend, and resume"),
        ("p", "change the priority of waiting jobs"),
        ("n", "start a scheduled job, or a delayed retry, now"),
        ("b", "release: take a running job back from its worker"),
        ("d", "remove a job that has ended"),
        ("z", "pause or resume the queue of the job"),
    ),
    "Leave": (("q, Ctrl-C", "quit"), ("Ctrl-Z", "pause the program; fg continues it")),
}
WIDTH: Final = 21


class HelpScreen(Screen[None]):
    """All keys. Any key that leaves a screen leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,left,backspace", "back", show=False)]

    def compose(self) -> ComposeResult:
        yield Bar(id="title", fill="reverse")
        yield TextPane(id="help", hangs=WIDTH + 2)
        yield Bar(id="keys")

    def on_mount(self) -> None:
        self.query_one("#title", Bar).show([(" daybreak top ", "bold"), (" keys", "")])
        self.query_one("#keys", Bar).show(key_line((("Esc", "back"), ("PgUp PgDn", "scroll"))))
        self.query_one(TextPane).show(help_lines())

    def action_back(self) -> None:
        self.dismiss(None)


def help_lines() -> list[Part]:
    lines: list[Part] = []
    for title, keys in KEYS.items():
        lines.append((f" {title}", "bold"))
        for key, text in keys:
            lines.append((f"  {key:<{WIDTH}}{text}", ""))
        lines.append(("", ""))
    return lines[:-1]
