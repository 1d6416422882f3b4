"""The stack of a running job, formatted like a traceback: logged for a job that shows no sign of life."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Final

from daybreak.system import platform

MAX_CHARS: Final = 20_000
_OWN_FILES: Final = str(Path(__file__).resolve().parents[1])
_SIGNAL_TIMEOUT: Final = 0.3  # seconds for a signal to be delivered and its handler to start writing


def stack_of_thread(ident: int) -> str:
    """The stack of a thread of this process, without Daybreak's own frames."""
    found = sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to another thread's stack
    if found is None:
        return ""
    frames = [frame for frame in traceback.extract_stack(found) if not frame.filename.startswith(_OWN_FILES)]
    return "".join(traceback.format_list(frames))[-MAX_CHARS:]


def stack_of_task(task: asyncio.Task[object]) -> str:
    """The stack of an asyncio task, from its coroutine through everything that it awaits, without Daybreak's own
    frames."""
    frames: list[traceback.FrameSummary] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < 100:
        frame = getattr(awaited, "cr_frame", None)
        if frame is not None:
            frames += traceback.extract_stack(frame, limit=1)
        awaited = getattr(awaited, "cr_await", None)
    user_frames = [frame for frame in frames if not frame.filename.startswith(_OWN_FILES)]
    return "".join(traceback.format_list(user_frames))[-MAX_CHARS:]


# -- when the interpreter cannot answer --------------------------------------------------------------------------------


def stack_by_signal(pid: int, file: IO[bytes]) -> str:
    """The stack of a process whose interpreter is blocked and cannot answer messages; empty where that is not possible.

    A signal makes the process write its stack to a file that it shares with the supervisor. The file has no name, so
    nothing is left behind if either of them is killed."""
    if sys.platform == "win32":
        return ""
    try:
        before = os.fstat(file.fileno()).st_size
        if not platform.request_stack(pid):
            return ""
        deadline = time.monotonic() + _SIGNAL_TIMEOUT
        while os.fstat(file.fileno()).st_size == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.02)
        # pread, not seek and read: both processes share the file position.
        return os.pread(file.fileno(), MAX_CHARS, before).decode(errors="replace")
    except (OSError, ValueError):  # the process is gone, or the file is closed
        return ""
