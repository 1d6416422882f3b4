"""A report about one unit under test, in WSJF."""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

PASSED, FAILED = "P", "F"


@dataclass
class UUTReport:
    """What was tested and how. `to_dict()` is the report in WSJF."""

    serial_number: str
    part_number: str
    revision: str = "A"
    process_code: int = 10
    station_name: str = field(default_factory=lambda: platform.node() or "station")
    location: str = "unknown"
    purpose: str = "Production"
    operator: str = "operator"
    result: str | None = None
    start: datetime = field(default_factory=lambda: datetime.now(UTC))
    exec_time: float = 0.0
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add_numeric_step(
        self,
        name: str,
        value: float,
        unit: str = "",
        low_limit: float | None = None,
        high_limit: float | None = None,
        status: str | None = None,
    ) -> dict[str, Any]:
        """Add a measurement. Without a status the limits decide."""
        is_within = (low_limit is None or value >= low_limit) and (high_limit is None or value <= high_limit)
        judged = status or (PASSED if is_within else FAILED)
        measured: dict[str, Any] = {"compOp": "LOG", "value": value, "unit": unit, "status": judged}
        if low_limit is not None or high_limit is not None:
            measured |= {"compOp": "GELE", "lowLimit": low_limit, "highLimit": high_limit}
        return self._add("ET_NLT", name, judged, numericMeas=[measured])

    def add_pass_fail_step(self, name: str, passed: bool) -> dict[str, Any]:
        judged = PASSED if passed else FAILED
        return self._add("ET_PFT", name, judged, booleanMeas=[{"status": judged}])

    def _add(self, kind: str, name: str, status: str, **measured: Any) -> dict[str, Any]:
        number = len(self.steps) + 2  # the sequence itself is step 1
        step = {"id": number, "group": "M", "stepType": kind, "name": name, "status": status, **measured}
        self.steps.append(step)
        return step

    def to_dict(self) -> dict[str, Any]:
        has_failed = any(step["status"] != PASSED for step in self.steps)
        result = self.result or (FAILED if has_failed else PASSED)
        return {
            "type": "T",
            "id": self.id,
            "pn": self.part_number,
            "sn": self.serial_number,
            "rev": self.revision,
            "processCode": self.process_code,
            "result": result,
            "machineName": self.station_name,
            "location": self.location,
            "purpose": self.purpose,
            "start": self.start.isoformat(),
            "startUTC": self.start.astimezone(UTC).isoformat(),
            "uut": {"user": self.operator, "execTime": self.exec_time},
            "root": {
                "id": 1,
                "group": "M",
                "stepType": "SequenceCall",
                "name": "MainSequence",
                "status": result,
                "totTime": self.exec_time,
                "steps": list(self.steps),
            },
        }
