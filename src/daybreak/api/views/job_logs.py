"""The output of a job as JSON data and as text."""

from __future__ import annotations

from typing import Any

from daybreak.client.job_logs import JobLogs
from daybreak.core.units import counted


def logs_view(logs: JobLogs) -> dict[str, Any]:
    """The pieces of the output, the oldest first, and the place where they end."""
    return {
        "pieces": [
            {
                "attempt": piece.attempt,
                "fence": piece.fence,
                "start": piece.start,
                "skipped": piece.skipped,
                "text": piece.text,
            }
            for piece in logs.pieces
        ],
        "next": logs.next,
    }


def log_text(logs: JobLogs) -> str:
    """The output as one text. A line before each run but a first one names its attempt, and a line says where bytes
    were left out. Control characters are as the job printed them."""
    text, fence = "", None
    for piece in logs.pieces:
        notes = []
        if piece.fence != fence and piece.fence > 1:
            notes.append(f"--- attempt {piece.attempt} ---")
        if piece.skipped:
            notes.append(f"... {counted(piece.skipped, 'byte')} left out ...")
        fence = piece.fence
        if notes and text and not text.endswith("\n"):
            text += "\n"
        text += "".join(f"{note}\n" for note in notes) + piece.text
    return text
