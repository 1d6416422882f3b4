"""The bridge of `test_bridges.py`, as a process of its own: `python bridge_load.py` runs it until it is killed."""

from __future__ import annotations

import logging
import os
from datetime import timedelta

from daybreak import Daybreak
from daybreak.client import feed_follower
from daybreak.feeds.bridge.process import run_bridges

app = Daybreak()


@app.task
def work(number: int) -> int:
    return number


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    # A bridge that is killed often must not wait for the record of the last one each time.
    feed_follower.TAKEOVER_AFTER = timedelta(seconds=0.5)  # type: ignore[misc]
    feed_follower.RENEW_INTERVAL = timedelta(seconds=0.1)  # type: ignore[misc]
    app.bridge(os.environ["BRIDGE_BROKER"], work, incoming="in.load", outgoing="out.load", capacity=None)
    run_bridges(app, app.bridges)
