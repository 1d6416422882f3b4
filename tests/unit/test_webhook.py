"""Webhooks: nothing private is reached, redirects are not followed, and the receiver can check who sent it."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import ipaddress
import json
import socket
import sys
import threading
from datetime import UTC, datetime

import pytest

from daybreak.api.alerts.settings import AlertSettings
from daybreak.api.alerts.sinks import run_command, send_webhook
from daybreak.policy.alerts import Notice
from daybreak.system import webhook

NOTICE = Notice(
    id="1-depth-warning", rule="depth", subject="sims", level="warning", before="ok", value=120.0, threshold=100.0,
    at=datetime(2026, 3, 1, tzinfo=UTC), text="warning: 120 jobs wait in queue sims", advice="start more workers",
)  # fmt: skip


class Receiver:
    """An HTTP server on loopback that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status, self.headers = 204, {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.got.append((dict(self.headers), self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]",  # noqa: S104
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fd00::1]",
        "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "224.0.0.1", "255.255.255.255",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused_without_a_connection(receiver, host, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was made"))
    error = webhook.post(f"http://{host}:{receiver.port}/x", b"{}", {})
    assert error.startswith("refused"), error
    assert receiver.got == []


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was made"))
    assert "10.0.0.1" in webhook.post("http://rebind.test/", b"", {})


def test_a_name_is_resolved_once_and_the_checked_address_is_used(monkeypatch):
    """A second answer, as in DNS rebinding, would come too late."""
    asked, connected = [], []

    def resolve(*args, **_):
        asked.append(args[0])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]

    def connect(_self, address):
        connected.append(address)
        raise ConnectionRefusedError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", connect)
    assert "cannot be reached" in webhook.post("http://rebind.test/x", b"", {})
    assert (asked, connected) == (["rebind.test"], [("93.184.216.34", 80)])


def test_redirects_are_not_followed(receiver):
    inner = Receiver()
    receiver.status, receiver.headers = 302, {"location": f"http://127.0.0.1:{inner.port}/secret"}
    error = webhook.post(f"http://127.0.0.1:{receiver.port}/", b"{}", {}, allow_private=True)
    inner.close()
    assert error.startswith("refused: the server redirects")
    assert (len(receiver.got), len(inner.got)) == (1, 0)


@pytest.mark.parametrize("url", ["ftp://example.com/", "https://", "http://[::1", "http://a:b@example.com/", "x"])
def test_an_address_that_is_none_is_refused(url):
    assert webhook.post(url, b"", {}).startswith("refused")


def test_public_addresses_are_told_from_others():
    assert all(webhook.is_public(ipaddress.ip_address(one)) for one in ("1.1.1.1", "2606:4700::1111"))


def test_the_receiver_can_check_the_signature(receiver):
    settings = AlertSettings(
        webhook=f"http://127.0.0.1:{receiver.port}/hook?x=1",
        webhook_secret="s3cret",  # noqa: S106
        allow_private_webhooks=True,
    )
    assert send_webhook(settings, NOTICE) == ""
    [(headers, body)] = receiver.got
    at, v1 = (part.partition("=")[2] for part in headers["Daybreak-Signature"].split(","))
    assert hmac.compare_digest(v1, hmac.new(b"s3cret", at.encode() + b"." + body, hashlib.sha256).hexdigest())
    assert json.loads(body)["id"] == headers["Daybreak-Notice"] == NOTICE.id


def test_an_answer_that_is_no_success_is_a_failed_delivery(receiver):
    receiver.status = 500
    settings = AlertSettings(webhook=f"http://127.0.0.1:{receiver.port}/", allow_private_webhooks=True)
    assert "500" in send_webhook(settings, NOTICE)


def test_a_command_gets_the_notice_as_json(tmp_path):
    target = tmp_path / "notice"
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    assert run_command((sys.executable, "-c", program, str(target)), NOTICE) == ""
    assert json.loads(target.read_bytes())["text"] == NOTICE.text
    assert "exit code 3" in run_command((sys.executable, "-c", "raise SystemExit(3)"), NOTICE)
    assert "No such file" in run_command(("/no/such/program",), NOTICE)
