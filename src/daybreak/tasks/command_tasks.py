"""The names of the tasks that run command lines. Only workers that were started with --allow-commands have them, and
only admins may submit them over HTTP: whoever submits such a job can run any program on that worker's machine."""

from __future__ import annotations

from typing import Final

EXEC: Final = "exec"  # of `daybreak exec`
EXEC_POINT: Final = "exec_point"  # of `daybreak sweep`
COMMAND_TASKS: Final = (EXEC, EXEC_POINT)
INPUTS: Final = "inputs"  # in a job's meta: the files on which its known result depends, with their digests
