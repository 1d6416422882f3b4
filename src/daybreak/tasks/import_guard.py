"""While a worker or its child imports user code, that code must not ask for work: every child would ask again."""

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
    global _importing  # noqa: PLW0603
    _importing += 1
    try:
        yield
    finally:
        _importing -= 1


def refuse_during_import(what: str) -> None:
    """Raises CalledDuringImport, naming the user's file and line, if user code is just being imported."""
    if not _importing:
        return
    frame = sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    raise CalledDuringImport(what, f"{frame.f_code.co_filename}:{frame.f_lineno}")
