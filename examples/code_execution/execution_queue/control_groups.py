"""A cgroup for each run of the sandbox: it bounds memory and processes of all processes of the run together."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
GROUPS: Final = "daybreak-sandbox-"


class ControlGroup:
    """A cgroup for one run: its folders, one per controller with cgroup v1, one alone with v2."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    def entering(self, command: list[str]) -> list[str]:
        """The command, run in this cgroup from its first instruction on."""
        script = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
        return ["/bin/sh", "-ec", script, "sh", *(str(folder / "cgroup.procs") for folder in self._folders),
                "--", *command]  # fmt: skip

    def has_run_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of this cgroup because of its limit of memory."""
        for folder in self._folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    for line in (folder / name).read_text(encoding="ascii").splitlines():
                        word, _, number = line.partition(" ")
                        if word == "oom_kill" and number != "0":
                            return True
        return False

    def remove(self) -> None:
        """Remove the cgroup. Its processes are being killed: that may take a moment."""
        for folder in self._folders:
            for _ in range(200):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break


@contextlib.contextmanager
def control_group(memory: int, processes: int) -> Iterator[ControlGroup | None]:
    """A cgroup with these limits, or None if this process may not make one."""
    group = make_control_group(memory, processes)
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


def make_control_group(memory: int, processes: int, root: Path = CGROUPS) -> ControlGroup | None:
    """A new cgroup with the limits of memory and processes; None if this process may not make one."""
    name = f"{GROUPS}{secrets.token_hex(8)}"
    if (root / "cgroup.controllers").exists():
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+memory +pids")
        wanted = {
            root / name: {"memory.max": memory, "memory.swap.max": 0, "pids.max": processes + 4},
        }  # fmt: skip
    else:
        wanted = {
            root / "memory" / name: {"memory.limit_in_bytes": memory},
            root / "pids" / name: {"pids.max": processes + 4},  # bwrap and its like count too
        }
    made: list[Path] = []
    try:
        for folder, values in wanted.items():
            folder.mkdir()
            made.append(folder)
            for file, value in values.items():
                if file != "memory.swap.max" or (folder / file).exists():
                    (folder / file).write_text(str(value))
    except OSError:
        ControlGroup(made).remove()
        return None
    return ControlGroup(made)


def remove_stale_groups(root: Path = CGROUPS) -> None:
    """Remove the cgroups of pod workers that were killed. One with processes in it stays."""
    for folder in [*root.glob(f"{GROUPS}*"), *root.glob(f"*/{GROUPS}*")]:
        with contextlib.suppress(OSError):
            folder.rmdir()
