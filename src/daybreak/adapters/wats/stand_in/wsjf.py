"""What a report in WSJF must have, so that the stand-in accepts it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

MAX_TEXT: Final = 100
_GUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_TEXTS: Final = ("pn", "sn", "rev", "machineName", "location", "purpose")
_PARTS: Final = {"T": ("uut", "root"), "R": ("uur", "subUnits")}


def fault_of(report: Any) -> str:
    """What is wrong with a report; empty if nothing is."""
    if not isinstance(report, dict):
        return "the body is not one JSON object"
    if not isinstance(report.get("id"), str) or not _GUID.fullmatch(report["id"]):
        return "id: a GUID is required"
    if report.get("type") not in _PARTS:
        return "type: T or R is required"
    if report.get("result") not in ("P", "F", "E", "T"):
        return "result: P, F, E or T is required"
    return _texts(report) or _numbers(report) or _parts(report)


def _texts(report: dict[str, Any]) -> str:
    for name in _TEXTS:
        text = report.get(name)
        if not isinstance(text, str) or not text:
            return f"{name}: a text is required"
        if len(text) > MAX_TEXT:
            return f"{name}: {len(text)} characters; the limit is {MAX_TEXT}"
    return ""


def _numbers(report: dict[str, Any]) -> str:
    code = report.get("processCode")
    if isinstance(code, bool) or not isinstance(code, int):
        return "processCode: a number is required"
    try:
        datetime.fromisoformat(report["start"])
    except (KeyError, TypeError, ValueError):
        return "start: a date and time is required"
    return ""


def _parts(report: dict[str, Any]) -> str:
    for name in _PARTS[report["type"]]:
        if not isinstance(report.get(name), dict | list):
            return f"{name}: it is required in a report of type {report['type']}"
    return ""
