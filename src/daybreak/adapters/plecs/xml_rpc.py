"""One XML-RPC call over HTTP. It ends within its time limit, reads no more than its size limit, and is never repeated.

The `ServerProxy` of the standard library has no time limit, and repeats a call whose connection was reset: a simulation
would run twice."""

from __future__ import annotations

import socket
import time
import xmlrpc.client
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final, NamedTuple
from xml.parsers import expat

from daybreak.adapters.plecs.errors import AnswerTooLarge, BadAnswer, ModelError, PlecsTimeout, PlecsUnavailable
from daybreak.core.units import counted

CHUNK: Final = 64 * 1024
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, *range(500, 600)})


class Address(NamedTuple):
    """Where PLECS listens."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Limits(NamedTuple):
    """Of one call: seconds until it is connected, seconds in all, and bytes of the answer."""

    connect: float
    total: float
    size: int


def call(address: Address, method: str, params: tuple[Any, ...], limits: Limits) -> Any:
    """The answer of the method. Raises `xmlrpc.client.Fault` if PLECS answers with an error."""
    body = xmlrpc.client.dumps(params, method).encode()
    connection = _Connection(address, limits)
    try:
        _connect(connection, address, limits)
        try:
            connection.request("POST", address.path, body, {"Content-Type": "text/xml", "Connection": "close"})
            response = connection.getresponse()
            _check_status(response, address)
            return _read(response, limits)
        except TimeoutError:
            raise PlecsTimeout(f"PLECS at {address} did not answer {method} within {limits.total:g} s") from None
        except (OSError, HTTPException) as error:
            lost = f"{type(error).__name__}: {error}".rstrip(": ")
            raise PlecsUnavailable(f"the connection to PLECS at {address} was lost during {method} ({lost})") from None
    finally:
        connection.close()


def _connect(connection: HTTPConnection, address: Address, limits: Limits) -> None:
    try:
        connection.connect()
    except TimeoutError:
        raise PlecsUnavailable(f"PLECS at {address} accepted no connection within {limits.connect:g} s") from None
    except OSError as error:
        raise PlecsUnavailable(
            f"PLECS cannot be reached at {address} ({error}); is its RPC server switched on in the preferences?"
        ) from None


def _check_status(response: HTTPResponse, address: Address) -> None:
    if response.status == 200:
        return
    answered = f"{address} answered HTTP {response.status} {response.reason}"
    if response.status in _TRANSIENT_STATUS:
        raise PlecsUnavailable(answered)
    raise ModelError(f"{answered}: this is not the RPC server of PLECS, or its path is wrong")


def _read(response: HTTPResponse, limits: Limits) -> Any:
    """Parse while reading, so that an endless answer ends at the size limit."""
    parser, size = _Parser(), 0
    while chunk := response.read(CHUNK):
        size += len(chunk)
        if size > limits.size:
            raise AnswerTooLarge(
                f"the answer is over {limits.size:,} bytes: ask for fewer points with the solver option OutputTimes, "
                "or raise max_answer"
            )
        parser.feed(chunk)
    if response.length:  # bytes that were announced, and did not come
        raise HTTPException(f"{counted(response.length, 'byte is', 'bytes are')} missing")
    return parser.close()


class _Parser:
    """The parser of the standard library, without document types: entities could make a small answer huge."""

    def __init__(self) -> None:
        self._found = xmlrpc.client.Unmarshaller()
        self._found.xml(None, None)  # type: ignore[arg-type] # no encoding: expat decodes
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._found.start
        self._parser.EndElementHandler = self._found.end
        self._parser.CharacterDataHandler = self._found.data
        self._parser.StartDoctypeDeclHandler = _refuse_doctype

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        try:
            self._parser.Parse(data, is_last)
        except (expat.ExpatError, xmlrpc.client.ResponseError, ValueError, TypeError, LookupError) as error:
            raise BadAnswer(f"the answer is no XML-RPC ({type(error).__name__}: {error})") from None

    def close(self) -> Any:
        self.feed(b"", is_last=True)
        try:
            answer = self._found.close()
        except xmlrpc.client.Fault:
            raise
        except (xmlrpc.client.Error, ValueError, TypeError, LookupError) as error:
            raise BadAnswer(f"the answer is no XML-RPC ({type(error).__name__}: {error})") from None
        if len(answer) != 1:
            raise BadAnswer(f"the answer has {len(answer)} values instead of one")
        return answer[0]


def _refuse_doctype(*_: object) -> None:
    raise BadAnswer("the answer declares a document type, which XML-RPC does not have")


class _Connection(HTTPConnection):
    """A connection of which every step counts towards one deadline."""

    def __init__(self, address: Address, limits: Limits) -> None:
        super().__init__(address.host, address.port)
        self._connect_limit = min(limits.connect, limits.total)
        self._deadline = time.monotonic() + limits.total

    def connect(self) -> None:
        connected = socket.create_connection((self.host, self.port), self._connect_limit)
        own = _DeadlineSocket(fileno=connected.detach())
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.deadline = self._deadline
        own.settimeout(max(self._deadline - time.monotonic(), 0.001))  # for sending, which has one limit in all
        self.sock = own


class _DeadlineSocket(socket.socket):
    """A socket's own timeout begins anew with every byte; this one ends at the deadline."""

    deadline: float = 0.0

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        self.settimeout(left)
        return super().recv_into(buffer, nbytes, flags)
