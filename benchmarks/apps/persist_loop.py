"""persist-queue has no worker: a loop of get, run, acknowledge, as its documentation shows."""

from __future__ import annotations

import os
import time
from pathlib import Path

from persistqueue import Empty, SQLiteAckQueue

from benchmarks.apps.record import started
from benchmarks.starts import PLACE


def main() -> None:
    queue = SQLiteAckQueue(str(Path(os.environ[PLACE]) / "persist"))
    while True:
        try:
            item = queue.get(block=False)
        except Empty:
            time.sleep(0.001)
            continue
        started(**item)
        queue.ack(item)


if __name__ == "__main__":
    main()
