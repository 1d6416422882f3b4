"""Where a job stands, as lines of a traceback: asked of one that shows no sign of life."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Final

from daybreak.system import platform

LIMIT: Final = 20_000
_OWN: Final = str(Path(__file__).resolve().parents[1])
_ASKED_FOR: Final = 0.3  # seconds for a signal to be heard and written about


def stack_of_thread(ident: int) -> str:
    found = sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to another thread's stack
    if found is None:
        return ""
    frames = [frame for frame in traceback.extract_stack(found) if not frame.filename.startswith(_OWN)]
    return "".join(traceback.format_list(frames))[-LIMIT:]


def stack_of_task(task: asyncio.Task[object]) -> str:
    """From the task inwards, through everything that it awaits."""
    frames: list[traceback.FrameSummary] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < 100:
        if (frame := getattr(awaited, "cr_frame", None)) is not None:
            frames += traceback.extract_stack(frame, limit=1)
        awaited = getattr(awaited, "cr_await", None)
    own = [frame for frame in frames if not frame.filename.startswith(_OWN)]
    return "".join(traceback.format_list(own))[-LIMIT:]


# -- where the interpreter cannot answer -------------------------------------------------------------------------------


def asked_by_signal(pid: int, file: IO[bytes]) -> str:
    """The stack of a process that holds its interpreter and answers nobody; empty where it cannot be had. It writes
    into a file that it shares with us, which has no name: nothing is left when either of us is killed."""
    if sys.platform == "win32":
        return ""
    try:
        before = os.fstat(file.fileno()).st_size
        if not platform.ask_stack(pid):
            return ""
        deadline = time.monotonic() + _ASKED_FOR
        while os.fstat(file.fileno()).st_size == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.02)
        # Not by seek and read: the place in the file is shared, too.
        return os.pread(file.fileno(), LIMIT, before).decode(errors="replace")
    except (OSError, ValueError):  # it is gone, or buried
        return ""
