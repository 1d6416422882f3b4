"""Retry policies by the names of the Integr8sCode code: attempts, first and longest delay, growth."""

from __future__ import annotations

from typing import Final

from daybreak import Retry

AGGRESSIVE: Final = Retry(attempts=5, delay="30s", cap="5m", factor=2.0)
CAUTIOUS: Final = Retry(attempts=3, delay="60s", cap="10m", factor=3.0)
IMMEDIATE: Final = Retry(strategy="fixed", attempts=3, delay="0s")
DEFAULT: Final = Retry(attempts=4, delay="60s", cap="30m", factor=2.5)

MAX_SAGA_START_RETRIES: Final = 3
POD_RETRY: Final = Retry(attempts=MAX_SAGA_START_RETRIES, delay="1s", cap="30s")  # when a pod died, or never answered
