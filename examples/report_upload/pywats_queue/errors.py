"""The errors of the WATS clients."""

from __future__ import annotations


class WATSError(Exception):
    """An upload did not succeed. `status` is the HTTP status of the answer, if there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ValidationError(WATSError):
    """The report is not one, or the server refuses it: sending it again is useless."""


class AuthenticationError(WATSError):
    """The token is wrong, or may not submit reports."""


class NetworkError(WATSError):
    """The server cannot be reached, is busy, or did not answer: sending the report again may help, and is safe."""
