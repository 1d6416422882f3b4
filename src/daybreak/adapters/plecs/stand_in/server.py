"""The stand-in's HTTP server and the methods of PLECS that it knows. It is not PLECS."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import xmlrpc.client
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from daybreak.adapters.plecs.stand_in.buck import ModelFault, read_model, simulate
from daybreak.adapters.plecs.stand_in.faults import Faults

HOST: Final = "127.0.0.1"
VERSION: Final = "0.0.0 (a stand-in, not PLECS)"
BUSY: Final = "the stand-in of PLECS is busy: another simulation is running"
MAX_REQUEST: Final = 64 * 1024 * 1024


class StandIn:
    """A stand-in on a free port of this machine, or on a given one. As a context manager it runs in a thread.

    `simulations`, `batches` and `refused` count what it did. `on_death` is called by the fault `die`; by default the
    server closes."""

    def __init__(
        self, faults: Faults | None = None, *, port: int = 0, cores: int = 1, on_death: Callable[[], None] | None = None
    ) -> None:
        self.faults = faults or Faults()
        self.cores = cores
        self.models: dict[str, dict[str, float]] = {}
        self.simulations = 0
        self.batches = 0
        self.refused = 0
        self.is_dead = False
        self._on_death = on_death
        self._running = threading.Lock()
        self._ended = threading.Event()
        self._pool: ProcessPoolExecutor | None = None
        self._server = _Server((HOST, port), _handler_of(self))
        self.port = int(self._server.server_address[1])
        self.address = f"http://{HOST}:{self.port}/RPC2"
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Answer calls until closed."""
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, name="plecs-stand-in", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_dead:
            self.close()

    # -- methods -------------------------------------------------------------------------------------------------------

    def answer(self, method: str, params: tuple[Any, ...]) -> Any:
        """What a method of PLECS answers. Raises Fault, or Silence for no answer at all."""
        known: dict[str, Callable[..., Any]] = {
            "system.listMethods": lambda: sorted(known),
            "plecs.statistics": lambda: {"version": VERSION, "build": "", "models": sorted(self.models)},
            "plecs.load": self._load,
            "plecs.close": self._close,
            "plecs.get": self._get,
            "plecs.set": self._set,
            "plecs.simulate": self._simulate,
        }
        if method not in known:
            raise _fault(f"the stand-in has no method {method}")
        try:
            return known[method](*params)
        except TypeError as error:
            raise _fault(f"{method}: {error}") from None

    def _load(self, path: str) -> str:
        model = Path(path) if Path(path).suffix == ".plecs" else Path(f"{path}.plecs")
        try:
            variables = read_model(model.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise _fault(f"cannot load {path}: {error}") from None
        if not variables:
            raise _fault(f"cannot load {path}: it sets no variable; the stand-in reads lines such as Vi = 24;")
        self.models[model.stem] = variables
        return ""

    def _close(self, model: str) -> str:
        self._model(model)
        del self.models[model]
        return ""

    def _get(self, path: str, parameter: str = "") -> Any:
        variables = self._model(path.partition("/")[0])
        return str(variables.get(parameter, "")) if parameter else {name: str(n) for name, n in variables.items()}

    def _set(self, path: str, parameter: str, value: str) -> str:
        self._model(path.partition("/")[0])[parameter] = float(value)
        return ""

    def _model(self, name: str) -> dict[str, float]:
        if name not in self.models:
            raise _fault(f"model {name} is not loaded")
        return self.models[name]

    def _simulate(self, model: str, options: Any = None) -> Any:
        fault = self.faults.next()
        if fault == "die":
            self._die()
        if fault == "hang":
            self._ended.wait()
            raise Silence
        if fault == "drop":
            raise Silence
        if fault == "unavailable":
            raise Unavailable
        if fault == "busy" or not self._running.acquire(blocking=False):
            self.refused += 1
            raise _fault(BUSY)
        try:
            found = self._run(self._model(model), {} if options is None else options)
        finally:
            self._running.release()
        if fault == "wrong":
            return {"Time": [0.0, 1.0, 2.0], "Values": [[0.0]]}
        return found

    def _run(self, variables: dict[str, float], options: Any) -> Any:
        if not isinstance(options, list):
            try:
                found = simulate(variables, options, self.faults.slow)
            except ModelFault as error:
                raise _fault(str(error)) from None
            self.simulations += 1
            return found
        self.batches += 1
        jobs = [(variables, one, self.faults.slow) for one in options]
        results = map(_element, jobs) if self.cores == 1 else self._workers().map(_element, jobs)
        found_all = list(results)
        self.simulations += len(found_all)
        return found_all

    def _workers(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")  # a fork would copy the locks of running threads
            self._pool = ProcessPoolExecutor(self.cores, mp_context=spawn, initializer=_end_with_parent)
        return self._pool

    def _die(self) -> None:
        self.is_dead = True
        if self._on_death is not None:
            self._on_death()
        threading.Thread(target=self.close, daemon=True).start()
        self._ended.wait()
        raise Silence


class Silence(Exception):
    """The connection is closed without an answer."""


class Unavailable(Exception):
    """Answered with HTTP 503."""


def _fault(text: str) -> xmlrpc.client.Fault:
    return xmlrpc.client.Fault(1, text)


def _element(job: tuple[dict[str, float], Any, float]) -> Any:
    """One element of a batch: its result, or the text of its error."""
    try:
        return simulate(*job)
    except ModelFault as error:
        return str(error)


def _end_with_parent() -> None:
    """End this process of the pool with the stand-in, also when that is killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news here."""


def _handler_of(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if self.path not in ("/", "/RPC2") or length > MAX_REQUEST:
                self.send_error(404 if length <= MAX_REQUEST else 413)
                return
            body = self.rfile.read(length)
            try:
                params, method = xmlrpc.client.loads(body)
                found = (stand_in.answer(method or "", params),)
                answer = xmlrpc.client.dumps(found, methodresponse=True)
            except xmlrpc.client.Fault as fault:
                answer = xmlrpc.client.dumps(fault)
            except Silence:
                self.close_connection = True
                return
            except Unavailable:
                self.send_error(503)
                return
            self._send(answer.encode())

        def _send(self, answer: bytes) -> None:
            with contextlib.suppress(OSError):  # the client has given up
                self.send_response(200)
                self.send_header("Content-Type", "text/xml")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Say nothing."""

    return Handler
