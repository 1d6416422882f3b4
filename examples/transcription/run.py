"""Recordings become transcripts on workers that reach nothing but SQS, signed URLs and the recogniser, and that are
killed at random.

python run.py                                     on moto's server, with a ledger in SQLite; nothing is left behind
python run.py --recordings 40 --kills 10          more of both
python run.py --ledger postgresql://host/database with a ledger in PostgreSQL
python run.py --keep night                        keep the folder: recordings, ledger, logs
"""

import argparse
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from botocore.config import Config  # type: ignore[import-untyped]
from botocore.session import get_session  # type: ignore[import-untyped]
from recordings import sentences, spoken

from daybreak import Daybreak, JobInfo, State

HERE = Path(__file__).parent
REGION, BUCKET = "eu-west-1", "recordings"
WORKERS = 3
LATE = 2  # recordings that arrive while the recogniser is busy
PATIENCE = 240.0  # seconds until this gives up


def main() -> int:
    options = argparse.ArgumentParser(description="Transcribe recordings on workers that are killed at random.")
    options.add_argument("--recordings", type=int, default=12, help="how many, at least 6 (12)")
    options.add_argument("--kills", type=int, default=4, help="how many workers are killed at most (4)")
    options.add_argument("--ledger", metavar="URL", help="the store [default: a SQLite file in the folder]")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for all of it, which is kept")
    given = options.parse_args()
    if given.recordings < 3 * LATE:
        sys.exit(f"--recordings {given.recordings}: at least {3 * LATE}")
    if shutil.which("espeak-ng") is None:
        sys.exit("espeak-ng makes the recordings: apt-get install espeak-ng")
    if given.keep is not None and given.keep.exists():
        sys.exit(f"{given.keep} exists: name a folder that does not, or delete it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started also then
    with contextlib.ExitStack() as around:
        folder = given.keep or Path(around.enter_context(tempfile.TemporaryDirectory(prefix="transcription-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return Night(folder.absolute(), given.ledger, around).run(given.recordings, given.kills)
        except KeyboardInterrupt:
            return 130


class Night:
    """All processes of the example, and what they did."""

    def __init__(self, folder: Path, ledger: str | None, around: contextlib.ExitStack) -> None:
        self.folder = folder
        self.ledger = ledger or str(folder / "ledger.db")
        self.prefix = f"transcribe-{uuid.uuid4().hex[:8]}"
        self._around = around
        self._workers: list[subprocess.Popen[bytes]] = []
        self.killed = 0
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DAYBREAK_", "AWS_"))},
            "AWS_ENDPOINT_URL": around.enter_context(moto()),
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "example",
            "AWS_SECRET_ACCESS_KEY": "example",
            "DAYBREAK_METADATA_URL": "off",
            "S3_ADDRESSING": "path",  # moto has no host name for each bucket
            "BUCKET": BUCKET,
            "LEDGER": self.ledger,
        }

    # -- the parts -----------------------------------------------------------------------------------------------------

    def client(self, service: str) -> Any:
        return get_session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="example",
            aws_secret_access_key="example",  # noqa: S106 - moto checks none
            config=Config(s3={"addressing_style": "path"}),
        )

    def start(self, name: str, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a program, with its log in the folder. It is killed at the end, if it has not ended before."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, *words],
                cwd=HERE,
                env={**self.environment, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._around.callback(kill, process)
        return process

    def start_worker(self) -> None:
        words = ["worker", "transcription.py", "--url", f"sqs://{REGION}/{self.prefix}", "--lease", "3s"]
        # A worker does not know where the ledger is, and has no rights in the bucket.
        process = self.start("workers", "-m", "daybreak.cli", *words, "--processes", "1", LEDGER="memory://")
        self._workers.append(process)

    def prepare(self) -> str:
        """The bucket, the queue of its events, and the queues of the workers. Returns the intake queue."""
        s3, sqs = self.client("s3"), self.client("sqs")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        dead = arn_of(sqs, sqs.create_queue(QueueName=f"{self.prefix}-intake-dead")["QueueUrl"])
        redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 5})
        intake = sqs.create_queue(QueueName=f"{self.prefix}-intake", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
        events = {"QueueArn": arn_of(sqs, intake), "Events": ["s3:ObjectCreated:*"]}
        prefix = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "recordings/"}]}}
        s3.put_bucket_notification_configuration(
            Bucket=BUCKET, NotificationConfiguration={"QueueConfigurations": [{**events, "Filter": prefix}]}
        )
        init = [sys.executable, "-m", "daybreak.cli", "sqs", "init", "--prefix", self.prefix, "--visibility", "3s"]
        subprocess.run(init, env=self.environment, check=True, capture_output=True)  # noqa: S603
        return str(intake)

    def start_all(self, intake: str, recordings: int) -> None:
        busy = ["--busy-after", str(recordings // 3), "--takes", "1"]
        self.start("recogniser", "recogniser.py", *busy)
        self.wait_until(lambda: self.log_of("recogniser").startswith("http"), "the recogniser has started")
        self.environment["RECOGNISER"] = self.log_of("recogniser").split()[0]
        self.start("intake", "intake.py", intake)
        to = f"sqs://{REGION}/{self.prefix}"
        words = ["transcription.py", "--url", self.ledger, "--to", to, "--grant", "signing.py:signed_urls"]
        self.start("dispatcher", "-m", "daybreak.cli", "dispatch", *words)
        for _ in range(WORKERS):
            self.start_worker()

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self, recordings: int, kills: int) -> int:
        began = time.monotonic()
        intake = self.prepare()
        self.start_all(intake, recordings)
        texts = sentences(recordings)
        said = self.record(texts[:-LATE], 0)
        print(f"{len(said)} recordings are in the bucket; {kills} workers will be killed at their work", flush=True)
        with Daybreak(self.ledger) as app:
            self.wait_until(lambda: self.recogniser()["refused"] > 0, "the recogniser answers HTTP 429")
            said |= self.record(texts[-LATE:], len(said))
            print(f"the recogniser is busy, and {LATE} more recordings arrive", flush=True)
            self.wait_until(lambda: measured(app) == recordings, "all recordings are measured")
            waiting = recordings - app.count(task="transcribe", state=State.COMPLETED)
            self.ask_recogniser("DELETE")
            self.wait_until(lambda: self.kill_some(kills, is_done(app, 2 * recordings)), "all recordings are done")
            jobs = list(app.find(limit=4 * recordings))
        return self.summary(said, jobs, waiting, time.monotonic() - began)

    def record(self, texts: list[str], first: int) -> dict[str, str]:
        """Put recordings into the bucket; S3 tells the intake queue of each. Returns what they say, by key."""
        s3, said = self.client("s3"), {}
        for n, text in enumerate(texts, first):
            key = f"recordings/{n:03}.wav"
            s3.put_object(Bucket=BUCKET, Key=key, Body=spoken(text, self.folder / f"{n:03}.wav"))
            said[key] = text
        return said

    def kill_some(self, kills: int, is_over: bool) -> bool:
        """Kill a worker at random while at least two of them wait for the recogniser, and start another."""
        if self.killed < kills and not is_over and self.recogniser()["open"] >= WORKERS - 1:
            victim = self._workers.pop(random.randrange(len(self._workers)))  # noqa: S311
            kill(victim)
            self.killed += 1
            self.start_worker()
        return is_over

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(
                    f"\n--- {name}\n{self.log_of(name)[-1500:]}" for name in ("dispatcher", "workers", "intake")
                )
                sys.exit(f"not within {PATIENCE:g} s: {what}{logs}")
            time.sleep(0.1)

    def recogniser(self) -> dict[str, Any]:
        """What the recogniser does, and did so far."""
        return dict(json.loads(self.ask_recogniser("GET")))

    def ask_recogniser(self, method: str) -> bytes:
        request = urllib.request.Request(self.environment["RECOGNISER"], method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            return bytes(reply.read())

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    # -- the count -----------------------------------------------------------------------------------------------------

    def summary(self, said: dict[str, str], jobs: list[JobInfo], waiting: int, seconds: float) -> int:
        mine = [job for job in jobs if job.args.get("object_key") in said]
        transcribed = [job for job in mine if job.spec.task == "transcribe"]
        accepted = self.transcripts(transcribed)
        objects = self.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="transcripts/").get("KeyCount", 0)
        right = sum(len(common(text, accepted.get(key, ""))) for key, text in said.items())
        words = sum(len(text.split()) for text in said.values())
        print(
            f"recordings in     {len(said)}\n"
            f"transcripts out   {len(accepted)}, exactly one accepted for each\n"
            f"workers killed    {self.killed}; {sum(job.lost for job in mine)} attempts died with them\n"
            f"busy recogniser   {self.recogniser()['refused']} x HTTP 429; meanwhile all {len(said)} recordings were "
            f"measured, and {waiting} waited for it\n"
            f"not accepted      {objects - len(accepted)} transcripts of workers that were killed after their upload\n"
            f"words             {right} of {words} recognised\n"
            f"time              {seconds:.0f} s"
        )
        is_good = (
            accepted.keys() == said.keys()
            and len(transcribed) == len(said)
            and len(mine) == 2 * len(said)
            and all(job.state is State.COMPLETED for job in mine)
            and self.killed > 0
            and right > words / 2
        )
        print("every recording has exactly one transcript" if is_good else "SOMETHING IS WRONG")
        return 0 if is_good else 1

    def transcripts(self, jobs: list[JobInfo]) -> dict[str, str]:
        """The text of each accepted transcript, by the key of its recording: those that the ledger names."""
        s3, found = self.client("s3"), {}
        for job in jobs:
            if job.state is State.COMPLETED and isinstance(job.result, dict):
                stored = s3.get_object(Bucket=BUCKET, Key=job.result["transcript"])["Body"].read()
                transcript = json.loads(stored)
                assert (transcript["task_id"], transcript["object_key"]) == (job.id, job.args["object_key"])
                found[transcript["object_key"]] = transcript["text"]
        return found


def common(said: str, heard: str) -> list[str]:
    """The words that were said and heard, each as often as both have it."""
    left = heard.split()
    found = []
    for word in said.split():
        if word in left:
            left.remove(word)
            found.append(word)
    return found


def measured(app: Daybreak) -> int:
    return app.count(task="measure", state=State.COMPLETED)


def is_done(app: Daybreak, number: int) -> bool:
    return app.count(state=[State.COMPLETED, State.FAILED, State.CANCELLED]) >= number


def arn_of(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with all its children, as a machine that is taken away."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """A server that speaks S3 and SQS, in this process."""
    try:
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only this example needs it
    except ImportError:
        sys.exit("moto takes the place of AWS: pip install 'moto[server,s3,sqs]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
