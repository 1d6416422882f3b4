"""Submits jobs for every recording that S3 tells of, each once, however often it tells.

python intake.py https://sqs.eu-west-1.amazonaws.com/123456789012/transcribe-intake
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

from botocore.session import get_session  # type: ignore[import-untyped]
from transcription import app, measure, transcribe

_log = logging.getLogger("intake")


def recordings(body: str) -> Iterator[tuple[str, str]]:
    """The key and the etag of each object that an S3 event names. S3's own test event names none."""
    for record in json.loads(body).get("Records", []):
        if record["eventName"].startswith("ObjectCreated:"):
            found = record["s3"]["object"]
            yield unquote_plus(found["key"]), found["eTag"]


def submit(key: str, etag: str) -> None:
    """The same object again is the same job: S3 may tell of it repeatedly."""
    measure.using(key=f"measure {key} {etag}").submit(object_key=key)
    transcribe.using(key=f"transcribe {key} {etag}").submit(object_key=key)


def take_in(sqs: Any, queue: str) -> None:
    """Submit first, then delete the message: a kill in between submits again, which changes nothing."""
    reply = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=2)
    for message in reply.get("Messages", []):
        try:
            for key, etag in recordings(message["Body"]):
                submit(key, etag)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # After five times SQS moves it to the dead-letter queue of the intake queue.
            _log.warning("message %s is no S3 event: %r", message["MessageId"], error)
            continue
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def main(queue: str) -> None:
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sqs = get_session().create_client("sqs", region_name=os.environ.get("AWS_REGION", "eu-west-1"))
    with app:
        while True:
            take_in(sqs, queue)


if __name__ == "__main__":
    main(sys.argv[1])
