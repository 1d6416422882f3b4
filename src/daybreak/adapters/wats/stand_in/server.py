"""The stand-in's HTTP server. It is not WATS."""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from daybreak.adapters.wats.stand_in.archive import Archive
from daybreak.adapters.wats.stand_in.faults import Fault, Faults
from daybreak.adapters.wats.stand_in.wsjf import fault_of

HOST: Final = "127.0.0.1"
TOKEN: Final = "stand-in"  # noqa: S105 - no secret
VERSION: Final = "0.0.0 (a stand-in, not WATS)"
MAX_REQUEST: Final = 64 * 1024 * 1024


class StandIn:
    """A stand-in on a free port of this machine, or on a given one. As a context manager it runs in a thread.

    `archive` has the reports and the counts. `faults` may be replaced at any time."""

    def __init__(
        self, faults: Faults | None = None, *, port: int = 0, token: str = TOKEN, archive: Archive | None = None
    ) -> None:
        self.faults = faults or Faults()
        self.token = token
        self.archive = archive or Archive()
        self.outages = 0
        self._ended = threading.Event()
        self._is_back = threading.Event()
        self._down_for: float | None = None
        self._lock = threading.Lock()
        # Bound but never listening: it keeps the port while the server is down. Connections to it are refused.
        self._port_holder = socket.socket()
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind((HOST, port))
        self.port = int(self._port_holder.getsockname()[1])
        self.url = f"http://{HOST}:{self.port}"
        self._server = _Server((HOST, self.port), _handler_of(self))
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Answer requests until closed, except while it is down."""
        while True:
            self._server.serve_forever(poll_interval=0.02)
            self._server.server_close()
            self._server.cut_connections()
            with self._lock:
                pause, self._down_for = self._down_for, None
            if pause is None:
                return
            self._is_back.wait(pause)
            self._is_back.clear()
            self._server = _Server((HOST, self.port), _handler_of(self))
            if self._ended.is_set():  # closed meanwhile, when the old server was the one to shut down
                self._server.server_close()
                return

    def go_down(self, seconds: float) -> None:
        """Close the port and all connections, for so long, or until `come_back`."""
        self._plan_outage(seconds)
        self._begin_outage()

    def _plan_outage(self, seconds: float) -> None:
        with self._lock:
            self._down_for = seconds
            self.outages += 1

    def _begin_outage(self) -> None:
        threading.Thread(target=self._server.shutdown, daemon=True).start()

    def come_back(self) -> None:
        """End an outage now."""
        self._is_back.set()

    def close(self) -> None:
        self._ended.set()
        self._is_back.set()
        self._server.shutdown()
        if self._thread is not None:
            self._thread.join()
        self._port_holder.close()

    def counts(self) -> dict[str, Any]:
        """What happened so far."""
        return {
            **self.archive.counts(),
            "submissions": self.faults.submissions,
            "faults": dict(self.faults.injected),
            "outages": self.outages,
        }

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, name="wats-stand-in", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- requests ------------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, authorization: str, body: bytes) -> Reply:
        """The answer to a request. Raises `Silence` for no answer at all."""
        words = path.lower().strip("/").split("/")
        if words[0] == "stand-in":
            return self._control(method, words[1:], body)
        if not hmac.compare_digest(authorization.encode(), f"Basic {self.token}".encode()):
            self.archive.count_unauthorized()
            return Reply(401, {"Message": "Authorization has been denied for this request."})
        match (method, words):
            case ("POST", ["api", "report", "wsjf"]):
                return self._submit(body)
            case ("GET", ["api", "report", "wsjf", report_id]):
                found = self.archive.get(report_id)
                return Reply(404, {"Message": "no such report"}) if found is None else Reply(200, found)
            case ("GET", ["api", "app", "version"]):
                return Reply(200, VERSION)
        return Reply(404, {"Message": f"no {method} {path}"})

    def _submit(self, body: bytes) -> Reply:
        try:
            report = json.loads(body)
        except ValueError:
            report = None
        report_id = str(report.get("id")) if isinstance(report, dict) else ""
        self.archive.begin(report_id)
        try:
            fault = self.faults.next()
            self._ended.wait(self.faults.slow)
            return self._decide(fault, report_id, report)
        finally:
            self.archive.end()

    def _decide(self, fault: Fault | None, report_id: str, report: Any) -> Reply:
        if fault == "down":
            self.go_down(self.faults.down_for)
        if fault in ("down", "drop"):
            raise Silence
        if fault == "errors":
            return Reply(500, {"Message": "this server fails as it was told"})
        if fault == "busy":
            seconds = self.faults.retry_after
            self.archive.ask_to_wait(report_id, seconds)
            return Reply(429, {"Message": "too many requests"}, {"Retry-After": str(seconds)})
        wrong = fault_of(report)
        if wrong:
            self.archive.count_rejected()
            return Reply(400, {"Message": wrong})
        self.archive.store(report)
        if fault == "lose":
            raise Silence
        return Reply(200, [{"ID": report["id"]}])

    def _control(self, method: str, words: list[str], body: bytes) -> Reply:
        if method == "GET" and not words:
            return Reply(200, self.counts())
        try:
            given = json.loads(body or b"{}")
            if words == ["down"]:
                self._plan_outage(float(given.get("seconds", 1.0)))
                return Reply(200, self.counts(), then=self._begin_outage)
            if words == ["faults"]:
                self.faults = _faults_of(given)
                return Reply(200, self.counts())
        except (ValueError, TypeError, AttributeError) as error:
            return Reply(400, {"Message": str(error)})
        return Reply(404, {"Message": "GET /stand-in, POST /stand-in/down, POST /stand-in/faults"})


class Reply:
    """An answer before it is sent. `then` is called after that."""

    def __init__(
        self,
        status: int,
        content: Any,
        headers: dict[str, str] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.status = status
        self.body = json.dumps(content).encode()
        self.headers = headers or {}
        self.then = then


class Silence(Exception):
    """The connection is closed without an answer."""


def _faults_of(given: dict[str, Any]) -> Faults:
    unknown = set(given) - {one.name for one in fields(Faults) if one.init}
    if unknown:
        raise ValueError(f"no fault is called {', '.join(sorted(unknown))}")
    return Faults(**given)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def cut_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news here."""


def _handler_of(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if not length.isdecimal() or int(length) > MAX_REQUEST:
                self.close_connection = True
                self.send_error(413)
                return
            body = self.rfile.read(int(length))
            try:
                reply = stand_in.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
            except Silence:
                self.close_connection = True
                return
            self._send(reply)
            if reply.then is not None:
                reply.then()

        def _send(self, reply: Reply) -> None:
            with contextlib.suppress(OSError):  # the client has given up
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply.body)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Say nothing."""

    return Handler
