"""A value that is stored and passed on, but never printed."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

HIDDEN: Final = "***"


class Secret(Generic[T]):
    """Shows as *** wherever it is printed, logged or formatted. `reveal` returns the value."""

    __slots__ = ("__value",)

    def __init__(self, value: T) -> None:
        self.__value = value

    def reveal(self) -> T:
        return self.__value

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN  # the spec could only add padding

    def __eq__(self, other: object) -> bool:
        return self.__value == other.__value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self.__value))
