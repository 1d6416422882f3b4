"""A guard on imports: while a worker or its child imports user code, that code must not submit jobs or start workers,
because every child would do it again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from daybreak.core.errors import CalledDuringImport

_HERE = str(Path(__file__).parents[1])
_importing = 0


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A block in which user code is imported."""
    global _importing  # noqa: PLW0603
    _importing += 1
    try:
        yield
    finally:
        _importing -= 1


def refuse_during_import(what: str) -> None:
    """Raise CalledDuringImport, with the user's file and line, if user code is being imported."""
    if not _importing:
        return
    frame = sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    raise CalledDuringImport(what, f"{frame.f_code.co_filename}:{frame.f_lineno}")
