"""What jobs print and log in this child, on its way to the supervisor.

`print` may run anywhere, even inside a destructor that interrupts this module in the same thread. So adding text takes
no lock for which it could wait; only the end of a job and the timer wait for a lock."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from daybreak.values.secret import HIDDEN
from daybreak.values.secret_texts import secret_texts
from daybreak.worker.wire import Output, Work, frame

HEAD_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 64 * 1024
FLUSH_INTERVAL: Final = 0.25  # seconds between two messages, unless a job ends
COLLECT_CHARS: Final = 256 * 1024  # characters that wait before they are cut to what will be sent


class Sender(Protocol):
    """The loop of a child, as this module uses it."""

    def send_output(self, data: bytes) -> None: ...

    @property
    def can_send(self) -> bool:
        """Whether this thread may send now: it is not in the middle of another message."""
        ...

    def flush_soon(self, flush: Callable[[], None]) -> None:
        """Call this in `FLUSH_INTERVAL` seconds. Does not wait."""
        ...


class FlushThread:
    """Calls a function `FLUSH_INTERVAL` seconds after it was asked to."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # `put` takes no lock
        threading.Thread(target=self._run, name="daybreak-child-output", daemon=True).start()

    def ask(self, flush: Callable[[], None]) -> None:
        self._asked.put(flush)

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone
            while True:
                flush = self._asked.get()
                time.sleep(FLUSH_INTERVAL)
                flush()


class JobOutput:
    """The output of one job."""

    def __init__(self, outputs: Outputs, work: Work) -> None:
        self._outputs = outputs
        self.work = work
        self.text = CutText()
        self._secrets: list[str] | None = None

    def add(self, text: str) -> None:
        self._outputs.add(self, text)

    def collect(self, text: str) -> None:
        """Add text to what is sent next."""
        if self._secrets is None:
            self._secrets = secret_texts(self.work.args)
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        self.text.add(text.encode("utf-8", "backslashreplace"))


class CutText:
    """The beginning and the end of a text that may be very long; what is between them is counted."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._skipped = 0

    def add(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-TAIL_BYTES:]
            self._skipped += max(len(data) - TAIL_BYTES, 0)
            surplus = len(self._tail) - TAIL_BYTES
            if surplus > 0:
                self._skipped += surplus
                del self._tail[:surplus]

    def take(self) -> Iterator[tuple[bytes, int]]:
        """The text in pieces, each with the number of bytes that are missing before it; then it is empty."""
        head, tail, skipped = bytes(self._head), bytes(self._tail), self._skipped
        self._head, self._tail, self._skipped = bytearray(), bytearray(), 0
        if head:
            yield head, 0
        if tail:
            yield tail, skipped


class Outputs:
    """The output of all jobs of one child."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._added: deque[tuple[JobOutput, str]] = deque()
        self._chars = 0
        self._unsent: dict[int, JobOutput] = {}
        self._lock = threading.Lock()
        self._flushed_at = 0.0
        self._is_scheduled = False

    def add(self, job: JobOutput, text: str) -> None:
        """Send this soon: at the end of a line at once if nothing was sent for a while, so that little is lost if the
        child dies."""
        self._added.append((job, text))
        self._chars += len(text)
        is_due = text.endswith("\n") and time.monotonic() - self._flushed_at >= FLUSH_INTERVAL
        is_sent = is_due and self._sender.can_send and self._flush(wait=False)
        if not is_sent and not self._is_scheduled:
            self._is_scheduled = True
            self._sender.flush_soon(self.flush)
        if self._chars > COLLECT_CHARS and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def flush(self) -> None:
        """Send everything that was added. What another thread is sending is sent when this returns."""
        self._flush(wait=True)

    def _flush(self, *, wait: bool) -> bool:
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            self._is_scheduled = False
            self._flushed_at = time.monotonic()
            self._collect()
            unsent, self._unsent = self._unsent, {}
            for job in unsent.values():
                for data, skipped in job.text.take():
                    self._sender.send_output(frame(Output(job.work.seq, job.work.fence, data, skipped)))
        finally:
            self._lock.release()
        return True

    def _collect(self) -> None:
        self._chars = 0
        while self._added:
            job, text = self._added.popleft()
            job.collect(text)
            self._unsent[id(job)] = job
