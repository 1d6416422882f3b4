"""How a bug is planted: a function of the state machine is replaced by one that does it wrong, until the test is over.

The state machine is the same for every store that runs on the kernel, so a bug is planted in all of them at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Change = tuple[Any, str, Callable[..., Any]]


class Bug:
    """One mistake. Called with the original function first, each replacement does something else."""

    def __init__(self, name: str, *, needs_book: bool = False) -> None:
        self.__name__ = name
        self._needs_book = needs_book
        self._patches: list[tuple[Any, str, Callable[..., Any]]] = []

    def also(self, owner: Any, name: str) -> Callable[[Callable[..., Any]], Bug]:
        """Replace one more function."""

        def add(wrong: Callable[..., Any]) -> Bug:
            self._patches.append((owner, name, wrong))
            return self

        return add

    @property
    def is_of_memory(self) -> bool:
        """Whether it is planted in the memory store's own tables, and not in the kernel."""
        owners = [owner for owner, _, _ in self._patches if not isinstance(owner, dict)]
        modules = [getattr(owner, "__module__", getattr(owner, "__name__", "")) for owner in owners]
        return self._needs_book or any(module.startswith("daybreak.stores.memory") for module in modules)

    @property
    def changes(self) -> list[Change]:
        """Of which module, class or dict, which name, and what it becomes."""
        return [(owner, name, _with_original(owner, name, wrong)) for owner, name, wrong in self._patches]

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Plant it, until the end of the block."""
        with contextlib.ExitStack() as stack:
            for owner, name, replaced in self.changes:
                patched = (
                    mock.patch.dict(owner, {name: replaced})
                    if isinstance(owner, dict)
                    else mock.patch.object(owner, name, replaced)
                )
                stack.enter_context(patched)
            yield


def bug(owner: Any, name: str, *, needs_book: bool = False) -> Callable[[Callable[..., Any]], Bug]:
    """The bug that replaces this function of a module or class, or this entry of a dict. `needs_book`: what it does
    instead works on the data of the memory store only."""

    def make(wrong: Callable[..., Any]) -> Bug:
        made = Bug(wrong.__name__, needs_book=needs_book)
        made.also(owner, name)(wrong)
        return made

    return make


def _with_original(owner: Any, name: str, wrong: Callable[..., Any]) -> Callable[..., Any]:
    real = owner[name] if isinstance(owner, dict) else getattr(owner, name)

    def replaced(*args: Any, **named: Any) -> Any:
        return wrong(real, *args, **named)

    return replaced
