"""Checks the certificate of a server before it listens, so that a mistake is an error that says what to do."""

from __future__ import annotations

import ssl
from pathlib import Path

from daybreak.core.errors import BadInput


def check_certificate(certificate: Path, key: Path) -> None:
    """Raise BadInput if a server cannot use this certificate with this key."""

    def refuse_password() -> str:
        # Without this, OpenSSL would ask for it on the terminal, and a service would wait forever.
        raise BadInput(f"the key {key} is protected by a password: write it without one, readable only by the server")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadInput(
                f"the key {key} does not belong to the certificate {certificate}: give the key with which the "
                "certificate was requested"
            ) from error
        raise BadInput(
            f"the certificate {certificate} or the key {key} cannot be used ({_reason(error)}): both must be PEM files"
        ) from error
    except OSError as error:
        raise BadInput(f"cannot read the certificate {certificate} or the key {key}: {error.strerror}") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
