"""The app that the demo's workers run."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final

from daybreak.api.app import Daybreak
from daybreak.core.model import Retry
from daybreak.demo import buck, licence
from daybreak.demo.buck import Converter

PORT: Final = "DAYBREAK_DEMO_LICENCE_PORT"

app = Daybreak(name="demo")


@app.task(retry=Retry(attempts=8, delay=timedelta(milliseconds=200)), timeout="1m")
def simulate(duty: float, load: float) -> Converter:
    """One point of the sweep. It checks out a licence first, and the licence server drops some connections."""
    licence.check_out(int(os.environ[PORT]))
    return buck.simulate(duty, load)
