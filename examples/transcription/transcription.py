"""The tasks: transcribe a recording, and measure it. They reach what their signed URLs reach, and the recogniser.

daybreak worker transcription.py --url sqs://eu-west-1/transcribe
"""

import io
import json
import os
import urllib.error
import urllib.request
import wave
from typing import Any

from daybreak import Breaker, Context, Daybreak, Resource, Retry, Transient

app = Daybreak(os.environ.get("LEDGER", "transcription.db"))
# Two answers of HTTP 429 in a row keep all recordings from the recogniser, and nothing else, until it has recovered.
RECOGNISER = Resource("recogniser", slots=4, breaker=Breaker(failures=2, successes=1, open_for="1s"))
# A spot instance may vanish often: that is not the fault of a recording.
PATIENT = {"retry": Retry(attempts=30, delay="500ms", cap="5m"), "deaths": 100}
ADDRESS = os.environ.get("RECOGNISER", "http://127.0.0.1:8090")
TIMEOUT = 60.0  # seconds


@app.task(resource=RECOGNISER, **PATIENT)
def transcribe(ctx: Context, object_key: str) -> dict[str, Any]:
    """Write the transcript of a recording. Returns where it is: the ledger accepts one of them."""
    grant = ctx.meta["grant"]
    audio = _get(grant["presigned_get_url"])
    ctx.progress(0.3, "downloaded")
    # HTTP 429 and 5xx are raised as they are: they are retried, not before their Retry-After.
    text = _request(f"{ADDRESS}/recognise", "POST", audio).decode()
    ctx.progress(0.9, "recognised")
    transcript = {"task_id": ctx.job, "object_key": object_key, "fence": ctx.fence, "text": text}
    _put(grant["presigned_put_url"], json.dumps(transcript).encode())
    return {"transcript": grant["output_key"], "words": len(text.split())}


@app.task(**PATIENT)
def measure(ctx: Context, object_key: str) -> float:  # noqa: ARG001 - the dispatcher signs the URL by it
    """How many seconds a recording lasts. It does not need the recogniser, and does not wait for it."""
    with wave.open(io.BytesIO(_get(ctx.meta["grant"]["presigned_get_url"]))) as audio:
        return audio.getnframes() / audio.getframerate()


def _get(url: str) -> bytes:
    try:
        return _request(url, "GET")
    except urllib.error.HTTPError as error:
        if error.code == 403:  # the URL has expired; the next attempt gets a new one
            raise Transient("the signed URL is not valid any more") from None
        raise


def _put(url: str, body: bytes) -> None:
    """Store the transcript, unless another delivery of the same lease has stored it already."""
    try:
        _request(url, "PUT", body, {"If-None-Match": "*"})
    except urllib.error.HTTPError as error:
        if error.code != 412:
            raise


def _request(url: str, method: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    request = urllib.request.Request(url, method=method, data=body, headers=headers or {})  # noqa: S310 - http or https
    if body is not None:
        request.add_unredirected_header("Content-Type", "application/octet-stream")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:  # noqa: S310
        return bytes(reply.read())
