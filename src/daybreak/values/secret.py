"""A value that is stored and passed on, and never printed."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

HIDDEN: Final = "***"


class Secret(Generic[T]):
    """Shows as *** wherever it is printed, logged or formatted; `reveal` gives what it holds."""

    __slots__ = ("__held",)

    def __init__(self, value: T) -> None:
        self.__held = value

    def reveal(self) -> T:
        return self.__held

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN  # whatever the width: padding would be all that a spec can add

    def __eq__(self, other: object) -> bool:
        return self.__held == other.__held if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self.__held))
