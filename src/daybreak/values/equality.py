"""Compares a decoded value with the original: NaN equals itself, True is not 1, and every part keeps its type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import msgspec

from daybreak.values.arrays import are_same
from daybreak.values.errors import step
from daybreak.values.secret import Secret
from daybreak.values.tagged_json import from_numpy


class Difference(msgspec.Struct, frozen=True):
    """Where two values first differ, and the two parts there."""

    path: str
    sent: object
    back: object

    def at(self, step: str) -> Difference:
        return Difference(step + self.path, self.sent, self.back)


def difference(sent: Any, back: Any) -> Difference | None:
    """Where the two first differ. `back` may have the plainer type of the annotation if it is equal: a float for 24, a
    str for a member of a StrEnum, a number for a numpy scalar, a Secret for a plain value."""
    if isinstance(back, Secret):
        held = sent.reveal() if isinstance(sent, Secret) else sent
        return None if difference(held, back.reveal()) is None else Difference("", back, back)
    if type(sent) is not type(back) and not _is_plainer(sent := from_numpy(sent), back):
        return Difference("", sent, back)
    if isinstance(back, dict):
        return _dict_difference(sent, back)
    if isinstance(back, list | tuple):
        return _list_difference(sent, back)
    if isinstance(back, set | frozenset):
        return None if _is_same_set(sent, back) else Difference("", sent, back)
    kind: Any = type(back)
    if (same := are_same(sent, back)) is not None:
        return None if same else Difference("", sent, back)
    if (names := _compared_fields(kind)) is not None:
        return _field_difference(sent, back, names)
    return None if _is_equal(sent, back) else Difference("", sent, back)


def _is_plainer(sent: Any, back: Any) -> bool:
    kind = type(back)
    if kind is float and isinstance(sent, int):
        return not isinstance(sent, bool)
    if isinstance(back, PurePath):
        return isinstance(sent, PurePath)
    return isinstance(sent, kind) and kind.__module__ in _PLAIN and not isinstance(sent, bool)


_PLAIN = frozenset({"builtins", "datetime", "decimal", "uuid"})


def _is_equal(sent: Any, back: Any) -> bool:
    if isinstance(back, Decimal):
        return str(sent) == str(back)  # 1.10 and 1.1 print differently, and == raises for a signalling NaN
    if isinstance(back, float):
        return bool(sent == back) or (sent != sent and back != back)  # noqa: PLR0124 - NaN
    try:
        return bool(sent == back or (sent != sent and back != back))  # noqa: PLR0124
    except Exception:  # noqa: BLE001 - a user's own __eq__
        return False


def _is_same_set(sent: Any, back: Any) -> bool:
    """Whether two sets have equal members of equal types. A member that is not equal to itself, such as NaN, is
    compared with every member of the other set."""
    if len(sent) != len(back):
        return False
    found = {member: member for member in back}
    unmatched = []
    for member in sent:
        if member not in found:
            unmatched.append(member)
        elif difference(member, found.pop(member)) is not None:
            return False
    return all(any(difference(one, other) is None for other in found) for one in unmatched)


def _dict_difference(sent: Any, back: Any) -> Difference | None:
    if len(sent) != len(back):
        return Difference("", sent, back)
    for (key, one), (other_key, other) in zip(sent.items(), back.items(), strict=True):
        if difference(key, other_key) is not None:
            return Difference(step(key), key, other_key)
        if (found := difference(one, other)) is not None:
            return found.at(step(key))
    return None


def _list_difference(sent: Any, back: Any) -> Difference | None:
    if len(sent) != len(back):
        return Difference("", sent, back)
    for i, (one, other) in enumerate(zip(sent, back, strict=True)):
        if (found := difference(one, other)) is not None:
            return found.at(f"[{i}]")
    return None


@lru_cache(maxsize=512)
def _compared_fields(kind: Any) -> Sequence[str] | None:
    """The attributes to compare; None for a type that is compared as a whole."""
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields  # noqa: PLC0415 - a program with dataclasses has imported it

        return [field.name for field in fields(kind) if field.compare]
    if (names := getattr(kind, "__struct_fields__", None)) is not None:
        return tuple(names)
    if hasattr(kind, "__pydantic_validator__") and (known := getattr(kind, "model_fields", None)) is not None:
        return (*known, "__pydantic_extra__", "__pydantic_private__")
    return None


def _field_difference(sent: Any, back: Any, names: Iterable[str]) -> Difference | None:
    for name in names:
        missing = object()
        one, other = getattr(sent, name, missing), getattr(back, name, missing)
        if (found := difference(one, other)) is not None:
            return found.at(f".{name}")
    return None
