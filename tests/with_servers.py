"""Run a command with PostgreSQL, Redis, NATS and RabbitMQ at hand: those that answer at their usual ports, or private
ones, which are started from the installed programs and ended afterwards.

    python tests/with_servers.py python -m pytest tests
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from run_again import default_signals

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "contract"), str(HERE / "stores" / "postgres"), str(HERE / "feeds" / "bridge")]


def main() -> int:
    default_signals()
    with contextlib.ExitStack() as ending:
        for variable, start in (
            ("DAYBREAK_TEST_POSTGRES", _postgres),
            ("DAYBREAK_TEST_REDIS", _redis),
            ("DAYBREAK_TEST_NATS", lambda ending: _broker(ending, "nats")),
            ("DAYBREAK_TEST_RABBITMQ", lambda ending: _broker(ending, "rabbitmq")),
        ):
            if variable not in os.environ:
                try:
                    url = start(ending)
                except Exception as error:  # noqa: BLE001 - the tests say loudly that there is none
                    print(f"!! no server for {variable}: {error}", file=sys.stderr)
                else:
                    if url:
                        os.environ[variable] = url
        return subprocess.run(sys.argv[1:], check=False).returncode


def _postgres(ending: contextlib.ExitStack) -> str | None:
    import postgres_private
    import postgres_servers
    import psycopg

    try:
        psycopg.connect(postgres_servers.URL, connect_timeout=3).close()
    except psycopg.Error:
        print("== a private PostgreSQL, since none answers at its port")
        return ending.enter_context(postgres_private.private_server()).url
    return None


def _redis(ending: contextlib.ExitStack) -> str | None:
    import redis_servers

    from daybreak.core.errors import StoreError

    try:
        with redis_servers.connect():
            return None
    except (OSError, StoreError):
        if shutil.which("redis-server") is None:
            raise
    print("== a private Redis, since none answers at its port")
    folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="daybreak-redis-")))
    return ending.enter_context(redis_servers.private(folder, "--appendfsync", "no")).url


def _broker(ending: contextlib.ExitStack, kind: str) -> str | None:
    import brokers

    if brokers.is_listening({"nats": brokers.NATS, "rabbitmq": brokers.RABBITMQ}[kind]):
        return None
    program = brokers.program_of(kind)
    if program is None:
        raise FileNotFoundError(f"{kind} is not installed")
    print(f"== a private {kind} server, since none answers at its port")
    folder = Path(
        ending.enter_context(tempfile.TemporaryDirectory(prefix=f"daybreak-{kind}-", ignore_cleanup_errors=True))
    )
    return ending.enter_context(brokers.private_broker(kind, folder)).url


if __name__ == "__main__":
    sys.exit(main())
