"""Model variables and solver options as PLECS takes them. The caller's own objects are never changed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from daybreak.core.errors import BadInput


def option_struct(variables: Mapping[str, Any] | None, solver: Mapping[str, Any], limit: timedelta) -> dict[str, Any]:
    """One optStruct: `ModelVars` and `SolverOpts`. Unless the options say otherwise, PLECS itself ends the run at the
    time limit; without this it would stay busy with a run that nobody waits for."""
    options = {"Timeout": limit.total_seconds(), **solver}
    return {
        "ModelVars": model_variables(variables or {}),
        "SolverOpts": {name: _value(f"solver option {name!r}", value) for name, value in options.items()},
    }


def model_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers become floats, because XML-RPC has no integer over 32 bits; vectors and matrices become lists."""
    if not isinstance(variables, Mapping):
        raise BadInput(f"model variables: {variables!r:.60} is no dict; write {{'Vi': 24.0}}")
    for name in variables:
        if not isinstance(name, str) or not name.isidentifier():
            raise BadInput(f"model variable {name!r:.60}: the name of a variable is a word such as 'Vi'")
    return {name: _value(f"model variable {name!r}", value) for name, value in variables.items()}


def _value(what: str, value: Any) -> Any:
    if hasattr(value, "tolist"):  # a numpy array or scalar
        value = value.tolist()
    if isinstance(value, str):
        if not all(char.isprintable() or char in "\n\t" for char in value):
            raise BadInput(f"{what}: {value!r:.60} contains control characters, which XML cannot carry")
        return value
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            raise BadInput(f"{what}: {value!r} is not finite, and XML-RPC has no such number")
        return number
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_value(what, one) for one in value]
    raise BadInput(f"{what}: {value!r:.60} is no number, text, vector or matrix")
