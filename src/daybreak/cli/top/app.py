"""The terminal program behind `daybreak top`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from textual.app import App
from textual.binding import Binding, BindingType
from textual.worker import WorkerFailed

from daybreak.cli.top.actions import BY_NAME, carry_out, outcome, plan
from daybreak.cli.top.data_screen import DataScreen
from daybreak.cli.top.dialogs import ConfirmDialog, PriorityDialog
from daybreak.cli.top.help_screen import HelpScreen
from daybreak.cli.top.jobs_screen import JobsScreen
from daybreak.client.client import Client
from daybreak.core.errors import DaybreakError
from daybreak.core.model import WAITING, State
from daybreak.core.text import counted, first_line, priority_name, safe

# What a store that went away may raise.
STORE_ERRORS: Final = (DaybreakError, OSError, TimeoutError)
SLOW: Final = timedelta(seconds=3)  # a reading that takes longer is reported


class TopApp(App[None]):
    """Reads the screen that is shown at most once per interval, and carries out actions.

    It uses the colours of the terminal, and every state is a word, so it can be read without colours."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Bar { height: 1; }
    RowTable, TextPane { height: 1fr; }
    #overview { height: 2; margin: 0; }
    #line { height: 1; }
    #attempts { height: 3; border-top: solid ansi_default; }
    #workers { border-top: solid ansi_default; }
    #help, #why, #facts { padding: 1 0 0 0; }
    ConfirmDialog, PriorityDialog { align: center middle; background: transparent; }
    #dialog { width: 60; max-width: 100%; height: auto; border: double ansi_default; padding: 1 2; }
    #question { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False),
        Binding("question_mark", "help", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
    ]

    def __init__(
        self,
        client: Client,
        store: str,
        every: timedelta,
        *,
        command: Callable[..., str],
        start_worker: Callable[[], str],
    ) -> None:
        """`command` writes a command line for this store, `start_worker` the one that starts a worker."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.client = client
        self.store_name = safe(store)
        self.command = command
        self.start_worker = start_worker
        self.message = ""
        self.trouble: str | None = None
        self.failure: Exception | None = None  # a bug, which ended the program
        self._every = every.total_seconds()
        self._hurry = asyncio.Event()

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def on_mount(self) -> None:
        self.push_screen(JobsScreen())
        self.run_worker(self._keep_reading())

    def _handle_exception(self, error: Exception) -> None:
        """Keep the error: the command reports it like any other. Textual would print the values of variables, which may
        be secrets."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        if self.failure is None and isinstance(cause, Exception):
            self.failure = cause
        super()._handle_exception(error)
        self._exit_renderables.clear()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        while True:
            if not self.is_headless and not _has_terminal():
                self.exit()
                return
            await self.read()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._every)
            self._hurry.clear()

    async def read(self) -> None:
        """Read the screen that is shown. A dialog is not read, and what is behind it waits."""
        screen = self.screen
        if not isinstance(screen, DataScreen):
            return
        late = self.set_timer(SLOW.total_seconds(), self._tell_late)
        try:
            await screen.read(self.client)
            self.trouble = None
        except STORE_ERRORS as error:
            self.trouble = f"{self._since()} {first_line(str(error))}"
        finally:
            late.stop()
        if screen.is_attached:
            screen.show()

    def _tell_late(self) -> None:
        """Say that what is shown is old, while the store does not answer."""
        self.trouble = self.trouble or f"{self._since()} the store does not answer"
        if isinstance(self.screen, DataScreen):
            self.screen.show()

    def _since(self) -> str:
        """When the trouble began."""
        return self.trouble.partition(" ")[0] if self.trouble else f"{self.now.astimezone():%H:%M:%S}"

    def hurry(self) -> None:
        """Read at once instead of after the interval."""
        self._hurry.set()

    def say(self, message: str) -> None:
        """Show a message until the next one."""
        self.message = message
        if isinstance(self.screen, DataScreen):
            self.screen.show()

    # -- actions -------------------------------------------------------------------------------------------------------

    async def act(self, name: str, ids: Sequence[str]) -> set[str]:
        """Change these jobs, after a confirmation if they are several or if it cannot be undone. Returns the ids of the
        jobs that were changed."""
        action = BY_NAME[name]
        to, level = "", None
        try:
            chosen = await plan(self.client, action, ids)
            if not chosen.ids:
                self.say(f"Cannot {action.label}. {chosen.refusal()}")
                return set()
            if action.name == "priority":
                question = f"Priority of {counted(len(chosen.ids), 'job')}:"
                level = await self.push_screen_wait(PriorityDialog(question, chosen.lines()[1:]))
                to = "" if level is None else f" to {priority_name(level)}"
                is_confirmed = level is not None
            elif len(ids) > 1 or action.asks:
                is_confirmed = await self.push_screen_wait(ConfirmDialog(chosen.question(), chosen.lines())) is True
            else:
                is_confirmed = True
            if not is_confirmed:
                self.say("Nothing was changed.")
                return set()
            answers = await carry_out(self.client, chosen, level)
        except STORE_ERRORS as error:
            self.say(f"Could not {action.label}: {first_line(str(error))}")
            return set()
        self.say(outcome(action, answers, to))
        self.hurry()
        return {answer.job for answer in answers}

    async def toggle_queue(self, queue: str) -> None:
        """Pause a queue, after a confirmation, or resume it."""
        try:
            if (await self.client.queue(queue)).paused:
                await self.client.unpause(queue)
                self.say(f"{safe(queue)} is resumed.")
            elif await self.push_screen_wait(
                ConfirmDialog(f"Pause the queue {safe(queue)}?", await self._pause_lines(queue))
            ):
                await self.client.pause(queue)
                self.say(f"{safe(queue)} is paused. Press z again to resume it.")
            else:
                self.say("Nothing was changed.")
        except STORE_ERRORS as error:
            self.say(f"Could not change {safe(queue)}: {first_line(str(error))}")
        self.hurry()

    async def _pause_lines(self, queue: str) -> list[str]:
        counts = await self.client.count(queue=queue)
        waiting = sum(counts[state] for state in WAITING)
        return [
            f"{counted(waiting, 'waiting job')} will not start until it is resumed.",
            f"{counted(counts[State.RUNNING], 'running job')} will continue.",
        ]

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())


def _has_terminal() -> bool:
    """Whether the terminal is still there. Without one, no key would ever end the program."""
    return sys.__stdin__ is not None and sys.__stdin__.isatty()
