"""The working directory in which every job of a child starts."""

from __future__ import annotations

import logging
import os
from typing import Final

_log = logging.getLogger("daybreak.worker")

_CAN_CHDIR_BY_FD: Final = os.chdir in os.supports_fd


class WorkingDirectory:
    """The directory that is current when this object is made. `restore` makes it current again.

    The directory is held open, so `restore` finds it even if it was renamed. If it was deleted, jobs start in the
    deleted directory, where relative paths do not exist, and not in whatever directory the last job left."""

    def __init__(self) -> None:
        self._fd: int | None = None
        try:
            self._path = os.getcwd()  # noqa: PTH109 - text, for messages
        except OSError:  # the directory is already deleted
            self._path = "."
        if _CAN_CHDIR_BY_FD:
            try:
                self._fd = os.open(".", os.O_RDONLY)
            except OSError as error:  # the directory may be entered, but not read
                _log.debug("cannot hold the working directory %s open: %s", self._path, error)

    def restore(self) -> None:
        if self._fd is not None:
            try:
                os.chdir(self._fd)
            except OSError:  # a task has closed this file descriptor
                self._fd = None
            else:
                return
        try:
            os.chdir(self._path)
        except OSError as error:
            _log.error(
                "a job changed the working directory, and this process cannot return to %s: %s; "
                "its next jobs start in the directory that the job left",
                self._path,
                error,
            )

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
