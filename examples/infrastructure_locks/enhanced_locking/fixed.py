"""Options that have one value here. Another one is refused: an option without effect would be a promise not kept."""

from __future__ import annotations

from collections.abc import Mapping

from daybreak import BadInput


def check_fixed(config: object, fixed: Mapping[str, object]) -> None:
    for name, value in fixed.items():
        if (said := getattr(config, name)) != value:
            raise BadInput(f"{type(config).__name__}: {name}={said!r} cannot be had here; it is always {value!r}")
