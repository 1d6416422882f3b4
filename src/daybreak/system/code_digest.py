"""Digests of a task's code: they tell whether two processes run the same function under one task name."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

_PLAIN: Final = (int, float, complex, str, bytes, type(None), type(...))  # bool is an int


def source_digest(function: Callable[..., Any]) -> str:
    """A short digest of what a function does: `"3.11-8f14e45fceea167a"`, or "" if there is no Python code to read.

    It is computed from the compiled code, the names and constants it uses, and its plain default values. So it belongs
    to the code that is loaded, even if the file has changed since, and needs no source file. Comments, formatting, the
    text of the docstring and the position in the file do not change it. Decorators below `@app.task` do not change it
    if they set `__wrapped__`; nor does the code of functions that this one calls.

    Every Python version compiles differently, so the digest begins with the version. Compare two digests with
    `code_changed`, which does not mistake another Python for other code."""
    unwrapped = inspect.unwrap(function)
    code = getattr(unwrapped, "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    _add_code(digest, code, unwrapped.__doc__)
    defaults = (unwrapped.__defaults__ or (), sorted((unwrapped.__kwdefaults__ or {}).items()))
    digest.update(_text(defaults).encode())
    return f"{sys.version_info.major}.{sys.version_info.minor}-{digest.hexdigest()}"


def code_changed(before: str, now: str) -> bool:
    """Whether two digests show that the code of a task has changed. If either is missing, or they come from different
    Python versions, nothing is known and the answer is False."""
    if not before or not now:
        return False
    return before.partition("-")[0] == now.partition("-")[0] and before != now


def _add_code(digest: hashlib.blake2b, code: CodeType, docstring: str | None = None) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        elif constant is None or constant != docstring:
            digest.update(_text(constant).encode())


def _text(value: object) -> str:
    """A value as text that is the same in every process: no addresses, and sets in a fixed order."""
    if isinstance(value, frozenset):
        return f"set({','.join(sorted(map(_text, value)))})"
    if isinstance(value, tuple | list):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__}:{value!r}"
    return f"<{type(value).__qualname__}>"
