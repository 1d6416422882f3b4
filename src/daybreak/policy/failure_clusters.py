"""Groups failures that have one cause: a fingerprint of the error that ignores what differs from job to job.

The fingerprint covers the class of the error, the functions on its stack, and its message without addresses, paths,
ids, times and numbers. Line numbers and folders do not count, so a cluster survives a small change of the code."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from daybreak.core.model import Failure, Job, Reason

MAX_FRAMES: Final = 12  # the innermost functions of a stack that count
MAX_MESSAGE: Final = 300  # characters of a message that count
FINGERPRINT_LENGTH: Final = 12

# In this order: what a later pattern would match in part must be replaced first.
_REPLACED: Final = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
        (r"\b0[xX][0-9a-fA-F]+", "<address>"),
        (r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)\]]+", "<url>"),
        (r"(?<![\w<])(?:[A-Za-z]:)?(?:[\\/][^\s\\/:'\"<>|()\[\],;]+)+[\\/]?", "<path>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b", "<host>"),
        (r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{6,}\b", "<id>"),
        (r"[-+]?\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?", "<n>"),
        (r"\s+", " "),
    )
)
_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]*)", line \d+, in (?P<function>.+)$', re.MULTILINE)
_OURS: Final = re.compile(r"[\\/]daybreak[\\/](?:worker|tasks|testing)[\\/]")


def plain_message(message: str) -> str:
    """A message without what differs from job to job."""
    text = message.strip()[: 4 * MAX_MESSAGE]
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    return text[:MAX_MESSAGE].strip()


def frames_of(traceback: str) -> list[str]:
    """The functions on a stack, the outermost first, each with the name of its file; a recursion counts once."""
    found: list[str] = []
    for match in _FRAME.finditer(traceback):
        path = match["file"].replace("\\", "/")
        if _OURS.search(path):
            continue
        frame = f"{path.rsplit('/', 1)[-1]}:{match['function'].strip()}"
        if not found or found[-1] != frame:
            found.append(frame)
    return found[-MAX_FRAMES:]


def fingerprint(failure: Failure | None, reason: Reason | None) -> str:
    """The same text for failures of one kind."""
    if failure is None:
        parts = [reason.value if reason is not None else ""]
    else:
        # Where a job was when its time was over is chance, so the stack of a timeout does not count.
        is_late = reason is Reason.TIMEOUT or failure.kind in ("TimeoutError", "Lost")
        frames = [] if is_late else frames_of(failure.traceback)
        parts = [failure.kind, *frames, plain_message(failure.message)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:FINGERPRINT_LENGTH]


def fingerprint_of(job: Job) -> str:
    """The fingerprint of the latest failure of a job."""
    return fingerprint(job.failure, job.reason)
