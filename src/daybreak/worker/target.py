"""Finds the user's app by its target: `module:app`, `file.py` or `file.py:app`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from daybreak.core.errors import DaybreakError, TargetNotFound
from daybreak.tasks.import_guard import importing
from daybreak.tasks.registry import Program


class HasProgram(Protocol):
    """An app, as far as this module needs it."""

    @property
    def program(self) -> Program: ...


def load(target: str) -> Any:
    """The app that a target names. Raises TargetNotFound if there is none.

    An error that the user's code raises during the import is raised unchanged, with its traceback."""
    where, _, attribute = _split(target)
    with importing():
        module = _from_file(Path(where)) if where.endswith(".py") else _from_name(where, target)
    return _app_in(module, attribute, target)


def load_function(target: str) -> Any:
    """The function that `module:function` or `file.py:function` names. Raises TargetNotFound if there is none."""
    where, _, attribute = _split(target)
    if not attribute:
        raise TargetNotFound(f"{target!r} does not name a function: write module:function or file.py:function")
    with importing():
        module = _from_file(Path(where)) if where.endswith(".py") else _from_name(where, target)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise TargetNotFound(f"{where} has no function {attribute!r}")
    return found


def load_modules(names: list[str]) -> None:
    """Import modules that register tasks."""
    with importing():
        for name in names:
            importlib.import_module(name)


def _split(target: str) -> tuple[str, str, str]:
    # Split at the last colon, because of drive letters: C:\jobs\sweep.py:app
    head, colon, tail = target.rpartition(":")
    if colon and tail.isidentifier() and head:
        return head, colon, tail
    if not target or target.endswith(":"):
        raise TargetNotFound(f"{target!r} does not name an app: write module:app, file.py or file.py:app")
    return target, "", ""


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetNotFound(f"there is no file {path}")
    path = path.resolve()
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A script may have the name of a module that is already loaded: it must not replace that module.
    if loaded is not None or not name.isidentifier():
        name = f"daybreak_script_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetNotFound(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _from_name(name: str, target: str) -> ModuleType:
    if not all(name.split(".")) or "\0" in name:
        raise TargetNotFound(f"{target!r} does not name a module: write module:app, file.py or file.py:app")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise  # an import inside the user's module failed: its own message is better
        hint = f"; there is a file {name}.py, did you mean that?" if Path(f"{name}.py").is_file() else ""
        raise TargetNotFound(
            f"cannot import {target!r}: no module {error.name!r} in {here} or on sys.path{hint}"
        ) from None


def _app_in(module: ModuleType, attribute: str, target: str) -> Any:
    if attribute:
        found = getattr(module, attribute, None)
        if found is None:
            raise TargetNotFound(f"{module.__name__} has no {attribute!r}; {_suggestion(module, attribute, target)}")
        if not is_app(found):
            kind = type(found).__name__
            raise TargetNotFound(
                f"{target!r} is not a Daybreak app, its type is {kind}; {_suggestion(module, attribute, target)}"
            )
        return found
    apps = _apps_of(module)
    if len(apps) == 1:
        return next(iter(apps.values()))[1]
    if not apps:
        raise TargetNotFound(f"no Daybreak app in {target}: add a line like app = Daybreak()")
    names = ", ".join(name for name, _ in apps.values())
    raise TargetNotFound(f"several apps in {target} ({names}): name one, as in {target}:{next(iter(apps.values()))[0]}")


def _apps_of(module: ModuleType) -> dict[int, tuple[str, Any]]:
    """The apps of a module, each once, under the first name that the module has for it."""
    apps: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if is_app(value):
            apps.setdefault(id(value), (name, value))
    return apps


def _suggestion(module: ModuleType, attribute: str, target: str) -> str:
    """The apps that the module has instead, the most similar names first."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - needed only for this error

    names = [name for name, _ in _apps_of(module).values()]
    if not names:
        return "it has no Daybreak app: add a line like app = Daybreak()"
    names.sort(key=lambda name: (-SequenceMatcher(None, attribute.lower(), name.lower()).ratio(), name))
    prefix = target.removesuffix(attribute)
    return f"did you mean {' or '.join(prefix + name for name in names[:5])}?"


def is_app(value: object) -> bool:
    """Whether a value is a Daybreak app."""
    return isinstance(getattr(value, "program", None), Program)


def target_of(app: HasProgram) -> str | None:
    """The target by which a child process finds this app. None if there is none, as in a function or a notebook."""
    definitions = list(app.program)
    modules = dict.fromkeys([*(definition.function.__module__ for definition in definitions), "__main__"])
    for name in [*modules, *sys.modules]:
        module = sys.modules.get(name)
        if module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if value is app:
                return _target_in(module, attribute)
    return None


def _target_in(module: ModuleType, attribute: str) -> str | None:
    if module.__name__ != "__main__" and _is_importable(module):
        return f"{module.__name__}:{attribute}"
    spec = getattr(module, "__spec__", None)
    if module.__name__ == "__main__" and spec is not None and spec.name:  # python -m package.module
        return f"{spec.name}:{attribute}"
    file = getattr(module, "__file__", None)
    if file and Path(file).is_file():
        return f"{Path(file).resolve()}:{attribute}"
    return None


def _is_importable(module: ModuleType) -> bool:
    """Whether another process can import this module by its name: a file loaded by its path has a private name."""
    spec = find(module.__name__)
    return spec is not None and spec.origin == getattr(module, "__file__", None)


def find(name: str) -> ModuleSpec | None:
    """Where another process would find a module. Modules that are already loaded here do not count."""
    parent, _, _ = name.rpartition(".")
    path = None
    if parent:
        if find(parent) is None or parent not in sys.modules:
            return None
        path = getattr(sys.modules[parent], "__path__", None)
    for finder in sys.meta_path:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
    return None


def sentence(error: BaseException) -> str:
    """An import error in one sentence, for messages without a traceback."""
    if isinstance(error, DaybreakError):
        return str(error)
    return f"{type(error).__name__}: {error}"
