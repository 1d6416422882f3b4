"""Digests of a task's code: they tell whether two processes run the same function under one task name."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from types import CodeType, ModuleType
from typing import Any, Final

# Entries of a class that are not written by its author, or are texts for people.
_NOT_CODE: Final = frozenset({
    "__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__", "__static_attributes__",
    "__annotate__", "__annotate_func__", "__annotations_cache__",
})  # fmt: skip
_HOLDS_FUNCTION: Final = ("__func__", "fget", "func")  # static and class methods, properties, cached properties
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: of all classes that Python code defines
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
    return _versioned(digest)


def whole_digest(function: Callable[..., Any]) -> str:
    """Like `source_digest`, together with everything that was put into the function where it was made: the decorators
    below `@app.task`, and the values that it and they hold of enclosing functions. Functions among these count by
    their code; numbers, texts and tuples of them by what they are; all others, which may change while the program
    runs, by their type."""
    if not source_digest(function):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(_function_text(function, set()).encode())
    return _versioned(digest)


def code_changed(before: str, now: str) -> bool:
    """Whether two digests show that the code of a task has changed. If either is missing, or they come from different
    Python versions, nothing is known and the answer is False."""
    if not before or not now:
        return False
    return before.partition("-")[0] == now.partition("-")[0] and before != now


def part_digest(part: object) -> str:
    """A digest of the code of a function, a class or a module, which is in Python; otherwise "". A package counts with
    all its modules. Of a module, the code counts that its file had when this was first asked in this process."""
    if isinstance(part, ModuleType):
        return _module_digest(part)
    if isinstance(part, type):
        return _class_digest(part)
    return whole_digest(part) if callable(part) else ""


@functools.cache
def _module_digest(module: ModuleType) -> str:
    import importlib.util  # noqa: PLC0415 - few programs need the two
    import pkgutil  # noqa: PLC0415

    digest = hashlib.blake2b(digest_size=8)
    names = [module.__name__]
    if hasattr(module, "__path__"):
        names += sorted(found.name for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}.", _ignore))
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
            code = spec.loader.get_code(name) if spec is not None else None  # type: ignore[union-attr]
        except (ImportError, AttributeError, ValueError):
            code = None
        if not isinstance(code, CodeType):
            return ""
        digest.update(name.encode())
        _add_code(digest, code)
    return _versioned(digest)


@functools.cache
def _class_digest(kind: type) -> str:
    """As the class was when this was first asked in this process: tables of a class may grow while the program runs."""
    if not kind.__flags__ & _HEAP_TYPE:
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for name, member in sorted(vars(kind).items()):
        if name in _NOT_CODE:
            continue
        function = next((getattr(member, held) for held in _HOLDS_FUNCTION if hasattr(member, held)), member)
        code = whole_digest(function) if callable(function) and not isinstance(function, type) else ""
        digest.update(f"{name}={code or _member_text(member)};".encode())
    for base in kind.__bases__:
        digest.update(f"{base.__qualname__}={_class_digest(base)};".encode())
    return _versioned(digest)


def _member_text(member: object) -> str:
    """A member of a class that is no function. Its tables count too, as far down as anybody writes them by hand."""
    return _table_text(member, 8) if isinstance(member, dict | set) else _text(member)


def _table_text(value: object, depth: int) -> str:
    if depth and isinstance(value, dict):
        pairs = (f"{_text(key)}:{_table_text(item, depth - 1)}" for key, item in value.items())
        return f"dict({','.join(sorted(pairs))})"
    return _text(frozenset(value) if isinstance(value, set) else value)


def _versioned(digest: hashlib.blake2b) -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}-{digest.hexdigest()}"


def _ignore(_name: str) -> None:
    """A module of a package that cannot be imported is found by its file all the same."""


def _function_text(function: Any, seen: set[int]) -> str:
    """The code of a function, what it holds of enclosing functions, and what it wraps. `seen` are those whose text is
    being made: a function may hold itself."""
    if id(function) in seen:
        return "<again>"
    seen.add(id(function))
    parts: list[str] = []
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        digest = hashlib.blake2b(digest_size=8)
        _add_code(digest, code, function.__doc__)
        defaults = (function.__defaults__ or (), sorted((function.__kwdefaults__ or {}).items()))
        parts += [digest.hexdigest(), _text(defaults)]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            parts.append(f"{name}={_cell_text(cell, seen)}")
    if hasattr(function, "__wrapped__"):
        parts.append(_function_text(function.__wrapped__, seen))
    return f"[{';'.join(parts)}]"


def _cell_text(cell: Any, seen: set[int]) -> str:
    try:
        value = cell.cell_contents
    except ValueError:
        return "<empty>"  # it is assigned later
    if callable(value) and not isinstance(value, type) and _has_code(value):
        return _function_text(value, seen)
    return f"<{type(value).__qualname__}>" if isinstance(value, list) else _text(value)


def _has_code(function: Callable[..., Any]) -> bool:
    try:
        return bool(source_digest(function))
    except ValueError:
        return False  # it wraps itself


def _add_code(digest: hashlib.blake2b, code: CodeType, docstring: str | None = None) -> None:
    digest.update(code.co_code)
    digest.update(getattr(code, "co_exceptiontable", b""))  # which instructions are in a `try`
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        elif constant is None or constant != docstring:
            digest.update(_text(constant).encode())


def _text(value: object) -> str:
    """A value as text that is the same in every process: no addresses, and sets in a fixed order."""
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}={_text(value.value)}"
    if isinstance(value, frozenset):
        return f"set({','.join(sorted(map(_text, value)))})"
    if isinstance(value, tuple | list):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__}:{value!r}"
    return f"<{type(value).__qualname__}>"
