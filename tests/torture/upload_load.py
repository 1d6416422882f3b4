"""The app of test_report_uploads.py: the task of the how-to page, with shorter delays."""

from __future__ import annotations

import os
from datetime import timedelta

from daybreak import Breaker, Daybreak, File, Retry, Secret
from daybreak.adapters.wats import AsyncWats, wats_resource

WATS = "DAYBREAK_TEST_WATS"
TOKEN = "DAYBREAK_TEST_WATS_TOKEN"  # noqa: S105 - the name of a variable

app = Daybreak()
wats = AsyncWats(os.environ.get(WATS, "http://127.0.0.1:9"), Secret(os.environ.get(TOKEN, "none")))
resource = wats_resource(breaker=Breaker(failures=5, successes=1, open_for=timedelta(milliseconds=500)))
retry = Retry(attempts=100, delay=timedelta(milliseconds=100), cap=timedelta(seconds=1), unknown="fail")


@app.task(resource=resource, retry=retry)
async def upload_report(report: File) -> str:
    receipt = await wats.submit(report)
    return receipt.id
