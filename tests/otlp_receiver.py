"""A receiver for OTLP over HTTP: keeps every span and every metric that is sent to it."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Span:
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    service: str
    scope: str
    status: int
    attributes: dict[str, Any]


@dataclass
class Receiver:
    """`metrics` has the latest points of every metric: attributes and value. `services` names the sender of each export
    of metrics."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    metrics: dict[str, list[tuple[dict[str, Any], Any]]] = field(default_factory=dict)
    services: list[str] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def env(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    def name_of(self, id_: str) -> str:
        """The name of a span, with the number of its attempt; FastAPI makes several for one request."""
        for span in self.spans:
            if span.id == id_:
                if span.scope == "fastapi":
                    return "request"
                attempt = span.attributes.get("daybreak.attempt")
                return span.name if attempt is None else f"{span.name} {attempt}"
        return f"missing {id_}" if id_ else ""

    def tree(self) -> list[tuple[str, str]]:
        """Every span with its parent, sorted; those of FastAPI are left out."""
        own = [span for span in self.spans if span.scope != "fastapi"]
        return sorted((self.name_of(span.id), self.name_of(span.parent)) for span in own)

    def add(self, path: str, body: bytes) -> bytes:
        with self.arrived:
            if path.endswith("/traces"):
                self._add_spans(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
            else:
                self._add_metrics(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse().SerializeToString()
            self.arrived.notify_all()
        return answer

    def _add_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Span(
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            service,
                            scope.scope.name,
                            span.status.code,
                            _values(span.attributes),
                        )
                    )

    def _add_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            self.services.append(_values(resource.resource.attributes)["service.name"])
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    points = getattr(metric, kind).data_points
                    self.metrics[metric.name] = [(_values(point.attributes), _value(kind, point)) for point in points]


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _value(kind: str, point: Any) -> Any:
    if kind == "histogram":
        assert sum(point.bucket_counts) == point.count
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        return point.count, point.sum
    return getattr(point, point.WhichOneof("value"))


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            answer = receiver.add(self.path, body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
