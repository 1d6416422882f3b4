"""Batch tasks: functions that take a list of items. Each item is a job; a worker puts jobs with the same batch key into
one call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.model import Batching, Need
from daybreak.core.units import duration
from daybreak.policy.resources import needs_of, parse_shares
from daybreak.tasks.registry import Definition
from daybreak.values.file import first_digest_in
from daybreak.values.items import ElementResult, ItemArguments, item_annotation
from daybreak.values.lazy import once

DEFAULT_SIZE: Final = 4
MAX_SIZE: Final = 1000
ONE_KEY: Final = "all"  # the batch key of items that refer to no file
_MAX_KEY: Final = 120
_write_sorted: Final = msgspec.json.Encoder(order="sorted").encode

By = str | Sequence[str] | Callable[[Any], object]


class BatchDefinition(Definition):
    """A registered batch task. `by` decides which items may share a call: a field, several fields, or a function of the
    item; without it the first file of an item."""

    batching: Batching

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        size: int = DEFAULT_SIZE,
        by: By | None = None,
        linger: object = None,
        **own: Any,
    ) -> None:
        super().__init__(function, **own)
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
            raise BadInput(f"batch task {self.name!r}: size={size!r:.40} must be an integer from 1 to {MAX_SIZE:,}")
        self.batching = Batching(size=size, linger=self._linger(linger))
        self._by = self._check_by(by)
        item_annotation(function, context=self.takes_context)  # raises now, not at the first job

    def _linger(self, linger: object) -> timedelta | None:
        if linger is None:
            return None
        return duration(linger, f"batch task {self.name!r}: linger") or None

    def _check_by(self, by: By | None) -> Callable[[Any], object] | tuple[str, ...]:
        if by is None or callable(by):
            return by or ()
        names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
        if not names or not all(isinstance(name, str) and name for name in names):
            raise BadInput(
                f"batch task {self.name!r}: by={by!r:.60}: write the name of a field, several in a list, "
                "or a function of the item"
            )
        return names

    @once
    def arguments(self) -> ItemArguments:
        """Encodes and decodes the item of a job."""
        return ItemArguments(self.function, context=self.takes_context)

    @once
    def result(self) -> ElementResult:
        """Encodes and decodes the result of a job."""
        return ElementResult.of(self.function)

    @once
    def parameters(self) -> list[str]:
        """The names of the item's fields, in order; `item` if it has none."""
        return self.arguments.names

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The fields of an item by their names."""
        return self.arguments.fields_of(self.arguments.item_of(args, kwargs))

    def batch_key(self, encoded: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], needs: tuple[Need, ...]) -> str:
        """The key of an item, whose encoded form is given too. Only items with the same key share a call. Items that
        need other resources never do: one of them holds the slots of the whole call."""
        key = self._key_of(encoded, args, kwargs)
        if needs != self._usual_needs:
            key = f"{key} {_digest([[need.resource, need.slots] for need in needs])[:16]}"
        return key

    @once
    def _usual_needs(self) -> tuple[Need, ...]:
        return () if callable(self.resource) else needs_of(parse_shares(self.resource))

    def _key_of(self, encoded: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        by = self._by
        if callable(by):
            found = by(self.arguments.item_of(args, kwargs))
            return self._key_from(found)
        if not by:
            return first_digest_in(encoded) or ONE_KEY
        stored = self.arguments.with_defaults(encoded)
        missing = [name for name in by if name not in stored]
        if missing and not self.arguments.is_dict and missing[0] not in self.parameters:
            known = ", ".join(self.parameters)
            raise BadInput(
                f"batch task {self.name!r}: by={missing[0]!r}: its items have no such field; they have {known}"
            )
        return _digest([_content_of(stored.get(name)) for name in by])

    def _key_from(self, found: object) -> str:
        if isinstance(found, str) and 0 < len(found) <= _MAX_KEY and found.isprintable():
            return found
        try:
            return _digest(found)
        except (TypeError, ValueError):
            raise BadInput(
                f"batch task {self.name!r}: by= returned {found!r:.60}: return text, a number, or a tuple of them"
            ) from None


def _content_of(stored: object) -> object:
    """The digest of a file, which counts whatever the file is called; any other value itself."""
    match stored:
        case {"$": ["file", {"sha256": digest}]}:
            return digest
    return stored


def _digest(value: object) -> str:
    return hashlib.blake2b(_write_sorted(value), digest_size=16).hexdigest()
