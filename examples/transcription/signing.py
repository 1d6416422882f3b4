"""Signs the URLs of a job at the moment when it is sent to a worker. Only the dispatcher has rights in the bucket.

daybreak dispatch transcription.py --to sqs://eu-west-1/transcribe --grant signing.py:signed_urls
"""

import functools
import os
from datetime import timedelta
from typing import Any

from botocore.config import Config  # type: ignore[import-untyped]
from botocore.session import get_session  # type: ignore[import-untyped]

from daybreak.sqs.grants import GrantRequest

BUCKET = os.environ.get("BUCKET", "recordings")
LONGEST = timedelta(hours=1)  # of a job


@functools.cache
def storage() -> Any:
    """The client of S3. AWS_ENDPOINT_URL names a server other than AWS."""
    config = Config(signature_version="s3v4", s3={"addressing_style": os.environ.get("S3_ADDRESSING", "auto")})
    return get_session().create_client("s3", region_name=os.environ.get("AWS_REGION", "eu-west-1"), config=config)


def signed_urls(request: GrantRequest) -> dict[str, str]:
    """The names are those of the original orchestrator. The output's key has the fence, and an object under it is never
    replaced: a late worker can only write what nobody reads."""
    seconds = int((request.valid_for + LONGEST).total_seconds())
    source = request.args["object_key"]
    granted = {"presigned_get_url": _signed("get_object", source, seconds)}
    if request.task == "transcribe":
        key = output_key(source, request.fence)
        granted |= {"output_key": key, "presigned_put_url": _signed("put_object", key, seconds, IfNoneMatch="*")}
    return granted


def output_key(source: str, fence: int) -> str:
    return f"transcripts/{source.removeprefix('recordings/')}/{fence}.json"


def _signed(operation: str, key: str, seconds: int, **more: str) -> str:
    parameters = {"Bucket": BUCKET, "Key": key, **more}
    return str(storage().generate_presigned_url(operation, Params=parameters, ExpiresIn=seconds))
