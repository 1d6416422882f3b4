"""Uploads every report that is dropped into a folder, each exactly once, the urgent ones first.

WATS=https://factory.wats.com WATS_TOKEN=... daybreak worker upload.py
"""

import os
from pathlib import Path

from daybreak import Daybreak, File, Retry, Secret
from daybreak.adapters.wats import AsyncWats, wats_resource

FOLDER = Path(os.environ.get("REPORTS", Path(__file__).parent / "drop"))
# Rejected reports fail at once. The others outlast a server that is away for days.
RETRY = Retry(attempts=200, delay=os.environ.get("RETRY_DELAY", "5m"), cap=os.environ.get("RETRY_CAP", "30m"))

app = Daybreak(os.environ.get("STORE", "upload.db"))
wats = AsyncWats(
    os.environ.get("WATS", "http://127.0.0.1:8080"), token=Secret(os.environ.get("WATS_TOKEN", "stand-in"))
)


@app.task(resource=wats_resource(), retry=RETRY)
async def upload_report(report: File) -> str:
    receipt = await wats.submit(report)
    return receipt.id


app.watch(FOLDER, upload_report, pattern="*.wsjf", retry=RETRY)
