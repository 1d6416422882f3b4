"""The stack of a running job, formatted like a traceback: logged for a job that shows no sign of life."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Final

from daybreak.system import platform

MAX_CHARS: Final = 20_000
MAX_FRAMES: Final = 100  # the innermost ones
MAX_FILE_BYTES: Final = 1 << 20
_OWN_FILES: Final = str(Path(__file__).resolve().parents[1])
_RUNNER: Final = str(Path(__file__).resolve().with_name("runner.py"))
_FRAME: Final = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_SIGNAL_TIMEOUT: Final = 0.3  # seconds for a signal to be delivered and its handler to start writing


def stack_of_thread(ident: int) -> str:
    """The stack of a thread of this process, without Daybreak's own frames."""
    found = sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to another thread's stack
    if found is None:
        return ""
    return _formatted(traceback.extract_stack(found, limit=MAX_FRAMES))


def stack_of_task(task: asyncio.Task[object]) -> str:
    """The stack of an asyncio task, from its coroutine through everything that it awaits, without Daybreak's own
    frames."""
    frames: list[traceback.FrameSummary] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < MAX_FRAMES:
        frame = getattr(awaited, "cr_frame", None)
        if frame is not None:
            frames += traceback.extract_stack(frame, limit=1)
        awaited = getattr(awaited, "cr_await", None)
    return _formatted(frames)


def _formatted(frames: list[traceback.FrameSummary]) -> str:
    """The frames from the task's function on, without Daybreak's own."""
    runner = max((n for n, frame in enumerate(frames) if frame.filename == _RUNNER), default=-1)
    user_frames = [frame for frame in frames[runner + 1 :] if not frame.filename.startswith(_OWN_FILES)]
    return "".join(traceback.format_list(user_frames))[-MAX_CHARS:]


# -- when the interpreter cannot answer --------------------------------------------------------------------------------


def stack_by_signal(pid: int, file: IO[bytes]) -> str:
    """The stack of a process whose interpreter is blocked and cannot answer messages; empty where that is not possible.

    A signal makes the process write its stack to a file that it shares with the supervisor. The file has no name, so
    nothing is left behind if either of them is killed."""
    if sys.platform == "win32":
        return ""
    try:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            os.ftruncate(file.fileno(), 0)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
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


def in_call_order(text: str) -> str:
    """A stack that a signal made, in the order of a traceback: the innermost call last. Of the thread that runs the
    task, the frames from the task's function on; if no thread runs one, of all threads that are not Daybreak's."""
    threads: list[list[re.Match[str]]] = []
    for line in text.splitlines():
        found = _FRAME.match(line)
        if found is None:
            threads.append([])
        elif threads:
            threads[-1].append(found)
    for frames in threads:
        files = [frame["file"] for frame in frames]
        if _RUNNER in files:
            return _reversed(frames[: files.index(_RUNNER)])
    foreign = [frames for frames in threads if not any(frame["file"].startswith(_OWN_FILES) for frame in frames)]
    return "".join(f"thread {n}:\n{_reversed(frames)}" for n, frames in enumerate(foreign, 1) if frames)


def _reversed(frames: list[re.Match[str]]) -> str:
    return "".join(
        f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}\n'
        for frame in reversed(frames[:MAX_FRAMES])
        if not frame["file"].startswith(_OWN_FILES)
    )
