"""Runs the points of `daybreak sweep`: a command line with the values of one point."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from daybreak.core.errors import Permanent
from daybreak.tasks.command_tasks import EXEC_POINT
from daybreak.tasks.context import Context
from daybreak.tasks.registry import Definition, Program
from daybreak.values.file import File
from daybreak.worker.child.command_template import CommandTemplate, fill
from daybreak.worker.child.commands import command_failed, run_process

OWN: Final = ("command", "how")  # parameters of the task that cannot be names of values
POINT: Final = "point"  # the entry of a job's meta that has the number of its point
DIGITS: Final = 4
MARKER: Final = ".daybreak-sweep"
MAX_FILES: Final = 10_000


def add_sweep_points(program: Program) -> None:
    """Add the task of `daybreak sweep` to a program that does not have it."""
    if EXEC_POINT not in program:
        definition = Definition(run_point, name=EXEC_POINT)
        # The command itself is an argument: another release of Daybreak is no other command.
        vars(definition)["code"] = ""
        program.add(definition)


def run_point(ctx: Context, command: str, how: dict[str, Any], **values: str) -> dict[str, Any]:
    """Run the command of one point. The result has its exit code, the end of its output, and the files that it left.

    `how` says where: `cwd` is the current folder of whoever submitted the sweep. If `folder` is given, each point runs
    in a folder of its own below it, which is emptied before every attempt. `collect` has patterns of files, in which
    placeholders are filled too."""
    template = CommandTemplate(command, shell=bool(how.get("shell")))
    folder = how["cwd"]
    number = ctx.meta.get(POINT, "")
    if how.get("folder"):
        folder = str(_own_folder(Path(how["folder"]), number))
    env = {**template.variables(values), "DAYBREAK_POINT": number, "DAYBREAK_HERE": how["cwd"]}
    argv = template.argv(values)
    code, stdout, stderr = run_process(ctx, argv, folder, env)
    if code != 0:
        raise command_failed(argv[0], code, stdout.strip(), stderr.strip())
    result: dict[str, Any] = {"exit_code": code, "stdout": stdout, "stderr": stderr}
    if how.get("collect"):
        plain = {name: glob.escape(value) for name, value in values.items()}
        found = _collected(Path(folder), [fill(pattern, plain) for pattern in how["collect"]])
        # Stored with the result, so that other machines can read them too.
        result["files"] = {os.path.relpath(path, how["cwd"]): File(path) for path in found}
    return result


def folder_name(number: int) -> str:
    """The name of a point's own folder: `0001` for the first point."""
    return str(number + 1).zfill(DIGITS)


def prepare_folder(parent: Path) -> None:
    """Make the folder of a sweep, in which every point gets its own. An existing folder is taken only if a sweep made
    it: the folders of points are emptied, and nobody else's files may be in them."""
    marker = parent / MARKER
    try:
        if parent.is_dir() and not marker.exists() and any(parent.iterdir()):
            raise Permanent(f"{parent} exists, and no sweep made it: rename it, choose another --name, or use --here")
        parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise Permanent(f"cannot make the folder of the sweep: {error}") from None


def _own_folder(parent: Path, number: str) -> Path:
    """An empty folder for one attempt at a point: what an earlier attempt left is no result."""
    prepare_folder(parent)
    folder = parent / folder_name(int(number or 0))
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
    except OSError as error:
        raise Permanent(f"cannot make an empty folder for the point: {error}") from None
    return folder


def _collected(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The files that match, in order. Links are not followed."""
    found = {path for pattern in patterns for path in _matches(folder, pattern)}
    if len(found) > MAX_FILES:
        raise Permanent(f"the command left {len(found):,} files that match; at most {MAX_FILES:,} are collected")
    return sorted(found)


def _matches(folder: Path, pattern: str) -> Iterator[Path]:
    inside = folder.resolve()
    for path in folder.glob(pattern):
        if path.is_file() and path.resolve().is_relative_to(inside) and not path.is_symlink():
            yield path
