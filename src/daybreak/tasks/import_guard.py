"""A guard on imports: while a worker or its child imports user code, that code must not submit jobs or start workers,
because every child would do it again."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from daybreak.core.errors import CalledDuringImport

_HERE = str(Path(__file__).parents[1])
_NOT_THE_USERS = (_HERE, str(Path(asyncio.__file__).parent), threading.__file__)
_importing = 0
_importer = 0  # the thread that imports


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A block in which user code is imported."""
    global _importing, _importer  # noqa: PLW0603
    _importing += 1
    _importer = threading.get_ident()
    try:
        yield
    finally:
        _importing -= 1


def refuse_during_import(what: str) -> None:
    """Raise CalledDuringImport, with the user's file and line, if user code is being imported."""
    if not _importing:
        return
    # The blocking form of an async method runs in a thread of its own, while the importing thread waits for it.
    frame = _users(sys._getframe(1)) or _users(sys._current_frames().get(_importer))  # noqa: SLF001
    raise CalledDuringImport(what, "a place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}")


def _users(frame: FrameType | None) -> FrameType | None:
    """The first frame from here outwards that is the user's; None if there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return frame
