"""Reads a job's arguments from the command line: `name=value`, `name=@file`, and `--args FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from daybreak import values
from daybreak.core.errors import BadInput, TooLarge
from daybreak.policy.admit import ARGS_LIMIT


def read_pairs(pairs: Mapping[str, str], files: Collection[str]) -> dict[str, str]:
    """The text of each argument: `@path` is replaced by the text of that file, a leading `@@` by an @. Those in `files`
    stay as they are, because their tasks want the file itself."""
    return {name: value if name in files else _text(name, value) for name, value in pairs.items()}


def _text(name: str, value: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    return read_text(value[1:], f"argument {name!r}") if value.startswith("@") else value


def read_args(path: str | None) -> dict[str, Any]:
    """The JSON object that `--args` names: a file, or `-` for standard input."""
    if path is None:
        return {}
    text = read_text(path, "--args")
    try:
        found = json.loads(text)
    except RecursionError:
        raise TooLarge(f"--args {path}: nested deeper than {values.DEPTH_LIMIT} levels") from None
    except ValueError as error:
        raise BadInput(f"--args {path} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f'--args {path}: expected a JSON object, such as {{"to": "ann"}}, not a {type(found).__name__}')
    return found


def read_text(path: str, what: str) -> str:
    """The text of a file, or of standard input for `-`. Reading stops at the size limit of a job's arguments."""
    if path == "-" and sys.stdin is None:
        raise BadInput(f"{what}: standard input is closed; pipe text into it, or name a file")
    try:
        if path == "-":
            data = sys.stdin.buffer.read(ARGS_LIMIT + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(ARGS_LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"{what}: cannot read {path or 'a file without a name'}: {reason}") from None
    if len(data) > ARGS_LIMIT:
        raise TooLarge(
            f"{what}: {path} is larger than the limit of {ARGS_LIMIT:,} bytes; pass the name of the file instead"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{what}: {path} is not UTF-8 text; pass the name of the file instead") from None


def untyped(pairs: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a task whose function is not known here: valid JSON as JSON, anything else as text. A pair
    overrides the same name in `named`."""
    return {**named, **{name: _json_or_text(text) for name, text in pairs.items()}}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def typed(arguments: values.Arguments, pairs: Mapping[str, str], named: Mapping[str, Any]) -> bytes:
    """The arguments, converted and checked by the function's annotations, as the encoded bytes of a job."""
    return arguments.encode_named({**arguments.accept(named), **arguments.from_text(pairs)})
