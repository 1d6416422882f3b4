"""The address of a set of queues: `sqs://region/prefix`, with `?endpoint=` for anything that is not AWS."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from daybreak.core.errors import BadInput

SCHEME: Final = "sqs://"
_PREFIX: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,28}[A-Za-z0-9])?")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")


class Address(Struct, frozen=True):
    """`endpoint` is the URL of a server that speaks SQS; None is that of AWS, or AWS_ENDPOINT_URL."""

    region: str
    prefix: str
    endpoint: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.region}/{self.prefix}"


def is_address(url: str | None) -> bool:
    return url is not None and url.startswith(SCHEME)


def address_of(url: str) -> Address:
    """Parse the address. Raises BadInput with the right spelling."""
    found = urlsplit(url)
    options = parse_qs(found.query, keep_blank_values=True)
    if not url.startswith(SCHEME) or not found.netloc or found.username or found.fragment:
        # The error repeats nothing of it: it may contain a password.
        raise BadInput(
            "this is not the address of SQS queues: write sqs://eu-west-1/prefix, without a name or password"
        )
    if unknown := sorted(options.keys() - {"endpoint"}):
        raise BadInput(f"{SCHEME}: there is no option {unknown[0]!r}; an address takes only ?endpoint=http://...")
    return checked(found.netloc, found.path.strip("/"), options.get("endpoint", [None])[0])


def checked(region: str | None, prefix: str, endpoint: str | None = None) -> Address:
    """The address of these parts; without a region, the one that AWS_REGION or AWS_DEFAULT_REGION names."""
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region or not _REGION.fullmatch(region):
        raise BadInput(f"region {region!r}: write --region eu-west-1, or set AWS_REGION")
    if not _PREFIX.fullmatch(prefix):
        raise BadInput(f"prefix {prefix!r:.60}: write 1 to 30 letters, digits, - or _, such as transcribe-prod")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise BadInput(f"endpoint {endpoint!r:.100}: write a URL such as http://127.0.0.1:5000")
    return Address(region, prefix, endpoint)
