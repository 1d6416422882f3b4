"""Peers that cannot share our environment: `python -m benchmarks prepare` gives each one of its own.

arq and saq want an older redis than ours; BullMQ runs in Node. Everything lies in benchmarks/.peers, which git
does not see; a run itself installs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.servers import binary

PLACE = Path(__file__).resolve().parent / ".peers"
ENVIRONMENTS = {
    "arq": ("arq>=0.26", "redis[hiredis]"),
    "saq": ("saq[hiredis,postgres,redis]>=0.24", "psycopg[binary]>=3.2"),
}
MODULES = {"bullmq": ("bullmq@>=5", "ioredis@>=5")}
PREPARE = "python -m benchmarks prepare"


def prepare() -> int:
    """Install what is not there yet; 1 where something could not be installed, by name."""
    failed = []
    for name, packages in ENVIRONMENTS.items():
        if not is_prepared(name) and not _make_environment(name, packages):
            failed.append(name)
    for name, packages in MODULES.items():
        if not is_prepared(name) and not _install_modules(name, packages):
            failed.append(name)
    for name in (*ENVIRONMENTS, *MODULES):
        print(f"{name:10}{'FAILED' if name in failed else 'there'}")
    return 1 if failed else 0


def is_prepared(name: str) -> bool:
    return (_place_of(name) / "complete").exists()


def python_of(name: str) -> str:
    """The interpreter of a peer's own environment; ours for everyone else."""
    return str(_place_of(name) / "bin" / "python") if name in ENVIRONMENTS else sys.executable


def modules_of(name: str) -> Path:
    return _place_of(name) / "node_modules"


def _place_of(name: str) -> Path:
    return PLACE / name


def _make_environment(name: str, packages: tuple[str, ...]) -> bool:
    place = _place_of(name)
    print(f"installing {', '.join(packages)}", flush=True)
    return (
        _ran([sys.executable, "-m", "venv", "--clear", "--without-pip", str(place)])
        # The pip of this environment installs into the other: Debian's Python cannot always give one its own.
        and _ran([sys.executable, "-m", "pip", "--python", python_of(name), "install", "--quiet", *packages])
        and _complete(place)
    )


def _install_modules(name: str, packages: tuple[str, ...]) -> bool:
    place = _place_of(name)
    if (npm := binary("npm")) is None:
        print("there is no npm")
        return False
    print(f"installing {', '.join(packages)}", flush=True)
    place.mkdir(parents=True, exist_ok=True)
    (place / "package.json").write_text(json.dumps({"private": True}), encoding="utf-8")
    return _ran([npm, "install", "--no-package-lock", "--silent", *packages], place) and _complete(place)


def _ran(command: list[str], place: Path | None = None) -> bool:
    ended = subprocess.run(command, cwd=place, capture_output=True, check=False, text=True)
    if ended.returncode:
        print("\n".join((ended.stderr or ended.stdout).strip().splitlines()[-5:]))
    return ended.returncode == 0


def _complete(place: Path) -> bool:
    (place / "complete").touch()
    return True
