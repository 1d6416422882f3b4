"""The recogniser: pocketsphinx behind HTTP, as a rented API is. It can be so busy that it answers 429.

python recogniser.py --port 8090 --busy-after 4
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import threading
import time
import wave
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NEVER = 10**9
RATE = 22050  # samples per second, as espeak-ng writes them
# What may be said. With it a small model on a small machine recognises a synthetic voice well; without it, hardly.
GRAMMAR = """#JSGF V1.0;
grammar notes;
public <note> = <what> <state> <place> <number> <since>;
<what> = the pump | the motor | the window | the battery | the engine;
<state> = is ready | is broken | is open | needs repair;
<place> = in building | on floor;
<number> = one | two | three | four | five | six | seven | eight | nine;
<since> = since yesterday | this morning | until friday;
"""


class Recogniser:
    """One decoder, used by one request at a time."""

    def __init__(self) -> None:
        from pocketsphinx import Decoder  # noqa: PLC0415 - `--help` does not need it

        with tempfile.TemporaryDirectory() as folder:
            grammar = Path(folder) / "notes.gram"
            grammar.write_text(GRAMMAR)
            self._decoder = Decoder(samprate=RATE, jsgf=str(grammar), lm=None, loglevel="FATAL")
        self._lock = threading.Lock()

    def text_of(self, audio: bytes) -> str:
        with wave.open(io.BytesIO(audio)) as opened:
            samples = opened.readframes(opened.getnframes())
        with self._lock:
            self._decoder.start_utt()
            self._decoder.process_raw(samples, full_utt=True)
            self._decoder.end_utt()
            found = self._decoder.hyp()
        return "" if found is None else str(found.hypstr)


class Api(ThreadingHTTPServer):
    """Answers 429 after `busy_after` requests, until it is told to recover. Each takes `takes` seconds."""

    def __init__(self, port: int, busy_after: int, takes: float) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.recogniser = Recogniser()
        self.busy_after, self.takes = busy_after, takes
        self.accepted = self.refused = self.open = 0
        self.lock = threading.Lock()

    def accepts(self) -> bool:
        with self.lock:
            is_busy = self.accepted >= self.busy_after
            self.refused += is_busy
            self.accepted += not is_busy
            self.open += not is_busy
        return not is_busy

    def text_of(self, audio: bytes) -> str:
        try:
            time.sleep(self.takes)
            return self.recogniser.text_of(audio)
        finally:
            with self.lock:
                self.open -= 1


class Answer(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        """What it does, and what it did so far."""
        self._answer(200, json.dumps({"open": self.server.open, "refused": self.server.refused}).encode())

    def do_DELETE(self) -> None:
        """Recover."""
        self.server.busy_after = NEVER
        self._answer(204, b"")

    def do_POST(self) -> None:
        audio = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.accepts():
            self._answer(429, b"too many requests", {"Retry-After": "1"})
            return
        self._answer(200, self.server.text_of(audio).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        with contextlib.suppress(ConnectionError):  # whoever asked was killed
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    def log_message(self, *words: object) -> None:
        """Nothing: it would drown what matters."""


def main() -> None:
    options = argparse.ArgumentParser(description="A recogniser behind HTTP.")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--busy-after", type=int, default=NEVER)
    options.add_argument("--takes", type=float, default=0.0, help="seconds that each answer takes longer")
    given = options.parse_args()
    with Api(given.port, given.busy_after, given.takes) as api:
        print(f"http://127.0.0.1:{api.server_port}", flush=True)
        api.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
