"""Finds the user's app: `module:app`, `file.py` or `file.py:app`."""

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
    @property
    def program(self) -> Program: ...


def load(target: str) -> Any:
    """The app that a target names; TargetNotFound says what was looked for and where.

    An error in the user's own code goes through as it is: its traceback is theirs."""
    place, _, attribute = _split(target)
    with importing():
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place, target)
    return _app_in(module, attribute, target)


def load_modules(names: list[str]) -> None:
    """Modules that register tasks when they are imported."""
    with importing():
        for name in names:
            importlib.import_module(name)


def _split(target: str) -> tuple[str, str, str]:
    # A drive letter is no module: C:\jobs\sweep.py:app
    head, colon, tail = target.rpartition(":")
    if colon and tail.isidentifier() and head:
        return head, colon, tail
    if not target or target.endswith(":"):
        raise TargetNotFound(f"{target!r} names no app: write module:app, file.py or file.py:app")
    return target, "", ""


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetNotFound(f"there is no file {path} to find an app in")
    path = path.resolve()
    name = path.stem
    before = sys.modules.get(name)
    if before is not None and getattr(before, "__file__", None) == str(path):
        return before
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A script may be named like a module that is loaded already: it must not take its place.
    name = name if before is None and name.isidentifier() else f"daybreak_script_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetNotFound(f"{path} is no Python file")
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
        raise TargetNotFound(f"{target!r} names no module: write module:app, file.py or file.py:app")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise  # something that the module itself imports is missing: its own message is better
        hint = f"; there is a file {name}.py, did you mean that?" if Path(f"{name}.py").is_file() else ""
        raise TargetNotFound(f"no module {error.name!r} to find {target!r} in, looked from {here}{hint}") from None


def _app_in(module: ModuleType, attribute: str, target: str) -> Any:
    if attribute:
        found = getattr(module, attribute, None)
        if found is None:
            raise TargetNotFound(f"{module.__name__} has no {attribute!r}; {_meant(module, attribute, target)}")
        if not is_app(found):
            kind = type(found).__name__
            raise TargetNotFound(
                f"{target!r} is no Daybreak app, its type is {kind}; {_meant(module, attribute, target)}"
            )
        return found
    apps = _apps_of(module)
    if len(apps) == 1:
        return next(iter(apps.values()))[1]
    if not apps:
        raise TargetNotFound(f"no Daybreak app in {target}: it should hold a line like app = Daybreak()")
    names = ", ".join(name for name, _ in apps.values())
    raise TargetNotFound(f"several apps in {target} ({names}): name one, as in {target}:{next(iter(apps.values()))[0]}")


def _apps_of(module: ModuleType) -> dict[int, tuple[str, Any]]:
    """The apps of a module, each once, with the first name it has there."""
    apps: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if is_app(value):
            apps.setdefault(id(value), (name, value))
    return apps


def _meant(module: ModuleType, attribute: str, target: str) -> str:
    """Which apps there are instead, those first whose names come closest."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - only where something is misspelt

    names = [name for name, _ in _apps_of(module).values()]
    if not names:
        return "there is no Daybreak app in it: it should hold a line like app = Daybreak()"
    names.sort(key=lambda name: (-SequenceMatcher(None, attribute.lower(), name.lower()).ratio(), name))
    place = target.removesuffix(attribute)
    return f"did you mean {' or '.join(place + name for name in names[:5])}?"


def is_app(value: object) -> bool:
    return isinstance(getattr(value, "program", None), Program)


def target_of(app: HasProgram) -> str | None:
    """How a child can find this app again; None if it cannot, as for an app made inside a function or a notebook."""
    definitions = list(app.program)
    modules = dict.fromkeys([*(definition.function.__module__ for definition in definitions), "__main__"])
    for name in [*modules, *sys.modules]:
        module = sys.modules.get(name)
        if module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if value is app:
                return _named(module, attribute)
    return None


def _named(module: ModuleType, attribute: str) -> str | None:
    if module.__name__ != "__main__" and _is_importable(module):
        return f"{module.__name__}:{attribute}"
    spec = getattr(module, "__spec__", None)
    if module.__name__ == "__main__" and spec is not None and spec.name:  # python -m package.module
        return f"{spec.name}:{attribute}"
    file = getattr(module, "__file__", None)
    return f"{Path(file).resolve()}:{attribute}" if file and Path(file).is_file() else None


def _is_importable(module: ModuleType) -> bool:
    """Whether its name leads to it: a file loaded by its path has a name that nobody else knows."""
    spec = find(module.__name__)
    return spec is not None and spec.origin == getattr(module, "__file__", None)


def find(name: str) -> ModuleSpec | None:
    """Where another process would find a module; what this one has loaded already says nothing of that."""
    parent, _, _ = name.rpartition(".")
    path = None
    if parent:
        if find(parent) is None or parent not in sys.modules:
            return None
        path = getattr(sys.modules[parent], "__path__", None)
    for finder in sys.meta_path:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            if (spec := finder.find_spec(name, path)) is not None:
                return spec
    return None


def sentence(error: BaseException) -> str:
    """An error of import in one sentence, for those who see no traceback."""
    return str(error) if isinstance(error, DaybreakError) else f"{type(error).__name__}: {error}"
