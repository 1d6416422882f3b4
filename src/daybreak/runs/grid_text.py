"""Reads the values of a parameter from one line of text: `vin=10,12,24` or `duty=0.1:0.9:0.1`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final

from daybreak.core.errors import BadInput
from daybreak.core.units import counted

MAX_POINTS: Final = 10_000_000

_ESCAPED: Final = frozenset("\\,:\"'")
_PRECISION: Final = 60


def parse_grid(text: str) -> tuple[str, list[str]]:
    """A parameter's name and its values, as the texts that were written.

    `10,12,24` is a list. `0.1:0.9:0.1` is a range: first, last (included if a step meets it) and step, counted in
    exact decimals; the step is 1 if it is left out. Both mix: `1:3,10`. Quotes, or a backslash before the character,
    make a comma, a colon or a quote part of a value; a quoted value is never a range."""
    name, separator, values = text.partition("=")
    name = name.strip()
    if not separator or not name:
        raise BadInput(f"{text!r} names no values; write NAME=VALUE,VALUE,... or NAME=FIRST:LAST:STEP")
    if not values.strip():
        raise BadInput(f"{name!r} has no values; write for example {name}=10,12,24 (an empty text is '')")
    found: list[str] = []
    for item, literal in _items(name, values):
        if literal or ":" not in item:
            found.append(item)
        else:
            found.extend(_range(name, item))
        if not item and not literal:
            raise BadInput(
                f"{name!r} has an empty value in {values!r}; remove the comma, or write '' for an empty text"
            )
        if len(found) > MAX_POINTS:
            raise BadInput(f"{name!r} has more than {MAX_POINTS:,} values")
    return name, found


def parse_number(text: str) -> Any:
    """The number, if the text is one as JSON writes it (`10`, `-0.5`, `1e3`); otherwise the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:  # noqa: PLR0124 - not NaN
        return value
    return text


def _items(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """The parts between commas, each with whether it is literal: a quote or a backslash says that it is no range."""
    item, literal, quote = "", False, ""
    characters = iter(enumerate(text))
    for at, char in characters:
        following = text[at + 1 : at + 2]
        if char == "\\" and following and following in _ESCAPED and quote != "'":
            item, literal = item + following, True
            next(characters)
        elif quote:
            if char == quote:
                quote = ""
            else:
                item += char
        elif char in "\"'":
            item, literal, quote = item.lstrip(), True, char
        elif char == ",":
            yield (item if literal else item.strip()), literal
            item, literal = "", False
        else:
            item += char
    if quote:
        raise BadInput(f"{name!r}: the quote {quote} in {text!r} is not closed")
    yield (item if literal else item.strip()), literal


def _range(name: str, item: str) -> list[str]:
    parts = [_decimal(part) for part in item.split(":")]
    numbers = [part for part in parts if part is not None]
    if len(numbers) < len(parts):
        # `localhost:8080` and `C:\\models` are texts; `1:x:2` is more likely a range with a typing error.
        if len(parts) == 3 and len(numbers) == 2:
            raise BadInput(f"{name!r}: {item!r} is not a range of three numbers; put quotes around it if it is a text")
        return [item]
    if len(numbers) > 3:
        raise BadInput(f"{name!r}: {item!r} has {len(numbers)} numbers; a range is FIRST:LAST or FIRST:LAST:STEP")
    if not all(number.is_finite() for number in numbers):
        raise BadInput(f"{name!r}: {item!r} is not a range; the first, the last and the step must be finite numbers")
    first, last = numbers[0], numbers[1]
    step = numbers[2] if len(numbers) == 3 else Decimal(1)
    if step == 0:
        raise BadInput(f"{name!r}: the step of {item!r} is 0; a range is FIRST:LAST:STEP")
    if (last - first) * step < 0:
        right = f"{first}:{last}:{-step}"
        raise BadInput(f"{name!r}: {item!r} never gets from {first} to {last}; write {right}, or swap the first two")
    with localcontext() as exact:
        exact.prec = _PRECISION
        steps = (last - first) / step
        if steps >= MAX_POINTS:
            raise BadInput(f"{name!r}: {item!r} has more than {counted(MAX_POINTS, 'value')}; use a larger step")
        return [_plain(first + step * number) for number in range(int(steps) + 1)]


def _decimal(text: str) -> Decimal | None:
    if "_" in text:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _plain(number: Decimal) -> str:
    if number == 0:
        return "0"
    return format(number.normalize(), "f")
