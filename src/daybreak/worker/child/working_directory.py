"""The working directory in which every job of a child begins."""

from __future__ import annotations

import logging
import os
from typing import Final

_log = logging.getLogger("daybreak.worker")

_CAN_RETURN_BY_NUMBER: Final = os.chdir in os.supports_fd


class Home:
    """The directory that is current when this is made. `restore` goes back to it.

    The directory is held open, so `restore` finds it also after it was renamed. If it was deleted, jobs are where they
    would be had no job gone elsewhere: in a directory without a name, where relative paths do not exist, rather than
    wherever the last job happened to be."""

    def __init__(self) -> None:
        self._fd: int | None = None
        try:
            self._path = os.getcwd()  # noqa: PTH109 - text, for messages
        except OSError:  # it is deleted already
            self._path = "."
        if _CAN_RETURN_BY_NUMBER:
            try:
                self._fd = os.open(".", os.O_RDONLY)
            except OSError as error:  # it may be entered, not read
                _log.debug("the working directory %s cannot be held open: %s", self._path, error)

    def restore(self) -> None:
        if self._fd is not None:
            try:
                os.chdir(self._fd)
            except OSError:  # a task has closed what it did not open
                self._fd = None
            else:
                return
        try:
            os.chdir(self._path)
        except OSError as error:
            _log.error(
                "a job has changed the working directory, and %s cannot be entered again: %s; the next jobs of this "
                "process begin where that job left it",
                self._path,
                error,
            )

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
