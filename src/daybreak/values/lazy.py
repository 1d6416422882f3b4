"""An attribute that is computed on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - written as a decorator
    """Computes an attribute on first use and keeps it. Concurrent threads may each compute it, but all get the same.

    Python 3.11's `cached_property` holds a lock meanwhile. In a process that is forked then, the lock stays locked."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        made = self._make(instance)
        return vars(instance).setdefault(self._name, made)  # type: ignore[no-any-return]
