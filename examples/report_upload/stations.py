"""Test stations of a factory: each is a process that tests power supplies and drops a report for each into a folder.

python stations.py drop --stations 3 --reports 40

A station writes as real ones do: some copy slowly, with pauses in the midst of a file, others rename a whole file.
A unit that fails is urgent, because the line waits for it. Each dropped report is told as a line of JSON."""

import argparse
import json
import random
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

LIMITS = {"output voltage": (23.8, 24.2, "V"), "ripple": (0.0, 0.12, "V"), "efficiency": (0.9, 1.0, "1")}


def main() -> int:
    options = argparse.ArgumentParser(description="Test stations that drop reports into a folder.")
    options.add_argument("folder", type=Path, help="where the reports are dropped")
    options.add_argument("--stations", type=int, default=3, help="how many, each a process (3)")
    options.add_argument("--reports", type=int, default=40, help="how many reports of each (40)")
    options.add_argument("--pause", type=float, default=0.05, help="seconds between two reports (0.05)")
    options.add_argument("--station", type=int, help="be this one station")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.station is not None:
        run_station(given.folder, given.station, given.reports, given.pause)
        return 0
    stations = [
        subprocess.Popen([sys.executable, *sys.argv, "--station", str(number)])  # noqa: S603 - this script itself
        for number in range(1, given.stations + 1)
    ]
    return max(station.wait() for station in stations)


def run_station(folder: Path, station: int, reports: int, pause: float) -> None:
    chance = random.Random(station)  # noqa: S311 - the same units in every run
    for number in range(1, reports + 1):
        report = make_report(f"Station {station}", f"S{station}-{number:04}", chance)
        is_urgent = report["result"] == "F"
        name = f"{report['sn']}.p1.wsjf" if is_urgent else f"{report['sn']}.wsjf"
        text = json.dumps(report, indent=1)
        if station % 2:
            write_slowly(folder / name, text, pause)
        else:
            rename_into(folder / name, text)
        tell({"id": report["id"], "name": name, "urgent": is_urgent})
        time.sleep(pause)


def tell(facts: dict[str, object]) -> None:
    """One line in one write, so that the lines of several stations do not mix."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def make_report(station: str, serial: str, chance: random.Random) -> dict[str, object]:
    """A report in WSJF, of a power supply for 24 V. One in ten fails."""
    shift = 0.3 if chance.random() < 0.1 else 0.0
    values = (24.0 + shift + chance.gauss(0, 0.03), abs(chance.gauss(0.05, 0.01)), chance.gauss(0.94, 0.005))
    steps = [measured(number, name, value) for number, (name, value) in enumerate(zip(LIMITS, values, strict=True), 2)]
    has_passed = all(step["status"] == "P" for step in steps)
    now = datetime.now(UTC)
    return {
        "type": "T",
        "id": str(uuid.uuid4()),
        "pn": "PSU-24-150",
        "sn": serial,
        "rev": "B",
        "processCode": 10,
        "processName": "Final test",
        "result": "P" if has_passed else "F",
        "machineName": station,
        "location": "Line 2",
        "purpose": "Production",
        "start": now.astimezone().isoformat(timespec="milliseconds"),
        "startUTC": now.isoformat(timespec="milliseconds"),
        "uut": {"user": "operator", "execTime": 12.5},
        "root": {
            "id": 1,
            "group": "M",
            "stepType": "SequenceCall",
            "name": "Final test",
            "status": "P" if has_passed else "F",
            "totTime": 12.5,
            "steps": steps,
        },
    }


def measured(number: int, name: str, value: float) -> dict[str, object]:
    low, high, unit = LIMITS[name]
    status = "P" if low <= value <= high else "F"
    measure = {"value": value, "unit": unit, "compOp": "GELE", "lowLimit": low, "highLimit": high, "status": status}
    step = {"id": number, "group": "M", "stepType": "ET_NLT", "name": name, "status": status, "totTime": 1.2}
    return {**step, "numericMeas": [measure]}


def write_slowly(path: Path, text: str, pause: float) -> None:
    """Half of the report, a pause, and the rest: what is read in between is no report."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        time.sleep(pause)
        file.write(text[len(text) // 2 :])


def rename_into(path: Path, text: str) -> None:
    """Written beside the folder, so that it appears whole."""
    beside = path.parent.parent / f".{path.name}"
    beside.write_text(text, encoding="utf-8")
    beside.rename(path)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
