"""The signed URLs and the intake of the transcription example, on a server that speaks S3."""

from __future__ import annotations

import json
import logging
import secrets
import urllib.error
import urllib.request
from datetime import timedelta

import intake
import pytest
import signing
import transcription
from moto.server import ThreadedMotoServer

from daybreak.sqs.grants import GrantRequest

KEY = "recordings/a b.wav"


@pytest.fixture
def storage(monkeypatch):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "S3_ADDRESSING": "path",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    signing.storage.cache_clear()
    found = signing.storage()
    # moto's data belong to the process, not to the server.
    bucket = f"recordings-{secrets.token_hex(4)}"
    monkeypatch.setattr(signing, "BUCKET", bucket)
    found.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    found.put_object(Bucket=bucket, Key=KEY, Body=b"audio")
    yield found
    signing.storage.cache_clear()
    server.stop()


def granted(fence: int, task: str = "transcribe") -> dict[str, str]:
    return signing.signed_urls(
        GrantRequest(
            job="j", task=task, args={"object_key": KEY}, fence=fence, attempt=1, valid_for=timedelta(minutes=5)
        )
    )


def test_a_signed_url_reads_the_recording_and_nothing_can_be_read_without_it(storage):
    url = granted(1)["presigned_get_url"]
    assert transcription._get(url) == b"audio"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url.split("?")[0], timeout=60)  # noqa: S310 - http
    assert "X-Amz-Expires=3900" in url


def test_a_late_worker_overwrites_nothing(storage):
    first, second = granted(1), granted(2)
    assert first["output_key"] != second["output_key"]
    transcription._put(second["presigned_put_url"], b"of the worker that counts")
    transcription._put(first["presigned_put_url"], b"of a late worker")
    transcription._put(second["presigned_put_url"], b"of a twin of the same delivery")
    stored = storage.get_object(Bucket=signing.BUCKET, Key=second["output_key"])["Body"].read()
    assert stored == b"of the worker that counts"


def test_a_task_that_writes_nothing_gets_no_right_to_write(storage):
    assert granted(1, "measure").keys() == {"presigned_get_url"}


def test_the_same_event_twice_is_one_job_of_each_task_and_a_new_content_is_another(tmp_path):
    transcription.app.use(f"sqlite:///{tmp_path}/ledger.db")
    with transcription.app as app:
        for etag in ("e1", "e1", "e2"):
            record = {"eventName": "ObjectCreated:Put", "s3": {"object": {"key": "recordings/a+b.wav", "eTag": etag}}}
            for key, found in intake.recordings(json.dumps({"Records": [record]})):
                intake.submit(key, found)
        jobs = list(app.find())
    assert sorted(job.spec.task for job in jobs) == ["measure", "measure", "transcribe", "transcribe"]
    assert {job.args["object_key"] for job in jobs} == {KEY}


def test_events_that_name_no_new_object_submit_nothing():
    removed = {"eventName": "ObjectRemoved:Delete", "s3": {"object": {"key": "k", "eTag": "e"}}}
    for body in ({"Event": "s3:TestEvent"}, {"Records": []}, {"Records": [removed]}):
        assert list(intake.recordings(json.dumps(body))) == []
