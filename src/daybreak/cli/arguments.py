"""A job's arguments as typed: `name=value`, `name=@file`, and `--args FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daybreak import values
from daybreak.core.errors import BadInput, TooLarge
from daybreak.policy.admit import ARGS_LIMIT


def read_pairs(pairs: Mapping[str, str]) -> dict[str, str]:
    """The text of each argument: `@path` stands for the text of a file, `@@` for an @."""
    return {name: _text(name, value) for name, value in pairs.items()}


def _text(name: str, value: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    return read_text(value[1:], f"argument {name!r}") if value.startswith("@") else value


def read_args(place: str | None) -> dict[str, Any]:
    """The JSON object of `--args`: a file, or `-` for what is piped in."""
    if place is None:
        return {}
    text = read_text(place, "--args")
    try:
        found = json.loads(text)
    except RecursionError:
        raise TooLarge(f"--args {place}: nested deeper than {values.DEPTH_LIMIT} levels") from None
    except ValueError as error:
        raise BadInput(f"--args {place} is no valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f'--args {place}: write a JSON object, such as {{"to": "ann"}}, not a {type(found).__name__}')
    return found


def read_text(place: str, what: str) -> str:
    """The text of a file; no more of it is read than a job's arguments may take."""
    if place == "-" and sys.stdin is None:
        raise BadInput(f"{what}: nothing is piped in, standard input is closed; pipe a text in, or name a file")
    try:
        if place == "-":
            data = sys.stdin.buffer.read(ARGS_LIMIT + 1)
        else:
            with Path(place).open("rb") as file:
                data = file.read(ARGS_LIMIT + 1)
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"{what}: {place or 'an empty name'} cannot be read: {told}") from None
    if len(data) > ARGS_LIMIT:
        raise TooLarge(
            f"{what}: {place} is larger than {ARGS_LIMIT:,} bytes, the limit; pass the name of the file instead"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{what}: {place} is no UTF-8 text; pass the name of the file instead") from None


def untyped(pairs: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a task whose function nobody here knows: JSON if it parses, else text. Pairs go before the file."""
    return {**named, **{name: _json_or_text(text) for name, text in pairs.items()}}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def typed(arguments: values.Arguments, pairs: Mapping[str, str], named: Mapping[str, Any]) -> bytes:
    """Arguments read and checked by the function's annotations, encoded."""
    return arguments.encode_named({**arguments.accept(named), **arguments.from_text(pairs)})
