"""Describes the machine of a run, so that its figures can be understood later. It records no host name and no path."""

from __future__ import annotations

import os
import platform
import resource
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import servers

QUIET = 0.06
PACKAGES = (
    "daybreak", "apsw", "msgspec", "psycopg", "redis", "hiredis", "huey", "litequeue", "persist-queue", "taskito",
    "celery", "rq", "dramatiq", "taskiq", "taskiq-redis", "streaq", "procrastinate", "pgqueuer", "asyncpg", "uvloop",
)  # fmt: skip


def machine(place: Path) -> dict[str, str | int]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "file_system": file_system(place),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    import sqlite3

    import apsw

    found = {"sqlite (apsw)": apsw.sqlite_lib_version(), "sqlite (peers)": sqlite3.sqlite_version}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found | servers.versions()


def file_system(place: Path) -> str:
    """The kind of the mount that holds `place`; "unknown" where the system does not tell."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    held = [(point, kind) for _, point, kind, *_ in map(str.split, mounts) if place.resolve().is_relative_to(point)]
    return max(held, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


class Disturbance:
    """The share of all cores that processes other than ours took meanwhile; None where /proc does not tell."""

    def __init__(self) -> None:
        self._busy, self._total, self._own = *_ticks(), _own()

    def share(self) -> float | None:
        busy, total = _ticks()
        if total == self._total:
            return None
        own = (_own() - self._own) * os.sysconf("SC_CLK_TCK")
        return round(max(0.0, (busy - self._busy - own) / (total - self._total)), 3)


def wait_for_quiet(patience: float) -> None:
    """Return when other processes use little CPU time, or when the patience is over."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        watch = Disturbance()
        time.sleep(0.5)
        if (watch.share() or 0) <= QUIET:
            return


def _ticks() -> tuple[int, int]:
    try:
        fields = [int(part) for part in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(fields) - fields[3] - fields[4], sum(fields)  # idle, iowait


def _own() -> float:
    # Children only count once they are waited for, which they are when a case has ended.
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
