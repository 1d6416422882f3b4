"""Ways to tell a person something: a command, a signed webhook, the desktop. Each blocks, so it is called in a thread.
It returns why it failed, or nothing."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final

from daybreak.system.webhook import post

COMMAND_TIMEOUT: Final = 10.0  # seconds
SIGNATURE_HEADER: Final = "Daybreak-Signature"


def run_command(command: Sequence[str], body: bytes, environ: Mapping[str, str] | None = None) -> str:
    """Run a command with the body on its standard input."""
    try:
        done = subprocess.run(  # noqa: S603 - the command that the settings or the user state
            command, input=body, capture_output=True, timeout=COMMAND_TIMEOUT, check=False,
            env=None if environ is None else dict(environ),
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return f"exit code {done.returncode}: {done.stderr[-300:].decode('utf-8', 'replace').strip()}"


def send_webhook(url: str, body: bytes, notice: str, *, secret: str | None, allow_private: bool) -> str:
    """POST the body as JSON, signed if there is a secret. `notice` is the id by which a receiver sees repetitions."""
    headers = {"Content-Type": "application/json", "User-Agent": "daybreak", "Daybreak-Notice": notice}
    if secret is not None:
        headers[SIGNATURE_HEADER] = signature(secret, body, int(time.time()))
    return post(url, body, headers, allow_private=allow_private)


def show_on_desktop(title: str, text: str) -> str:
    """Show a notice on the desktop of this machine."""
    error = run_command(["notify-send", "--app-name=Daybreak", "--", title, text], b"")
    return f"notify-send: {error}" if error else ""


def signature(secret: str, body: bytes, at: int) -> str:
    """`t=SECONDS,v1=HEX`: the HMAC-SHA256 of the time, a dot and the body. The time lets a receiver refuse replays."""
    signed = hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256)
    return f"t={at},v1={signed.hexdigest()}"
