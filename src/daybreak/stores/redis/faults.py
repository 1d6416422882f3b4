"""What goes wrong between us and the server, as Daybreak says it."""

from __future__ import annotations

import re

from daybreak.core.errors import (
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsuitable,
)
from daybreak.stores.redis.address import Address


class Cut(StoreUnavailable):
    """The server took the connection, and it was lost before it could be used."""


# The first word of an error reply says what it is. None of these has changed anything: a script's first write is the
# one that is refused.
_SAYINGS: dict[str, tuple[type[StoreError], str]] = {
    "LOADING": (StoreUnavailable, "is still loading its data"),
    "MASTERDOWN": (StoreUnavailable, "is a replica that has lost its master"),
    "TRYAGAIN": (StoreUnavailable, "is moving this namespace to another node"),
    "CLUSTERDOWN": (StoreUnavailable, "belongs to a cluster that is down"),
    "READONLY": (StoreUnavailable, "is a read-only replica now"),
    "NOREPLICAS": (StoreUnavailable, "has too few replicas to accept writes"),
    "BUSY": (StoreUnavailable, "is busy with a script that does not end (SCRIPT KILL ends it)"),
    "MISCONF": (StoreReadOnly, "cannot save to its disk and refuses writes"),
    "OOM": (
        StoreFull,
        "has used all the memory it may (maxmemory): nothing was written; raise it",
    ),
    "NOAUTH": (StoreUnsuitable, "asks for a password and was given none: put it into the URL, redis://:password@host"),
    "WRONGPASS": (StoreUnsuitable, "refuses this user name and password: check both in the URL"),
    "NOPERM": (StoreUnsuitable, "does not permit this user what the store needs"),
}
# After these the connection is of no use: the server that can help is found by connecting anew.
STALE = ("READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING")
_PLACE = re.compile(r" ?script: \S+,? on @user_script:\d+\.?|@user_script: ?\d+: ?", re.ASCII)


def word(reply: str) -> str:
    """The first word of an error reply; those of scripts are sometimes wrapped."""
    first = reply.removeprefix("ERR ").split(" ", 1)[0].removeprefix("-").rstrip(":")
    if first in _SAYINGS or first in ("NOSCRIPT", "MOVED", "ASK"):
        return first
    found = re.search(r"@user_script: ?\d+: -?([A-Z]+) ", reply)
    if found and found[1] in _SAYINGS:
        return found[1]
    if "-OOM" in reply or "OOM command not allowed" in reply:
        return "OOM"
    if "read only replica" in reply:
        return "READONLY"
    if "user executing the script can't" in reply:
        return "NOPERM"
    return first


def is_channel(reply: str) -> bool:
    """Whether it is the channels of this user that do not suffice. A new user of Redis 7 has none."""
    return word(reply) == "NOPERM" and "channel" in reply


def grant(address: Address, prefix: bytes) -> str:
    """What gives a user the channels of a namespace."""
    return f"ACL SETUSER {address.username or 'default'} '&{prefix.decode()}*'"


def no_channels(address: Address, prefix: bytes) -> StoreUnsuitable:
    return StoreUnsuitable(
        f"{address} does not permit this user to wake others: nothing was written; let one who may run "
        f"{grant(address, prefix)}"
    )


def refused(address: Address, reply: str) -> StoreError:
    """The server answered with an error."""
    saying = _SAYINGS.get(word(reply))
    if saying is None and "max number of clients" in reply:
        return StoreUnavailable(f"{address} has as many clients as it may have")
    if saying is None and ("invalid password" in reply or "AUTH" in reply):
        return StoreUnsuitable(f"{address} refuses this password, or has none: check the password in the URL")
    if saying is None and "DB index is out of range" in reply:
        return StoreUnsuitable(f"{address} has no database {address.db}: correct the number in the URL")
    if saying is None:
        return StoreError(f"{address} refused: {_PLACE.sub('', reply)}")
    kind, says = saying
    detail = f": {reply}" if word(reply) in ("NOPERM", "MISCONF") else ""
    return kind(f"{address} {says}{detail}")


def unreachable(address: Address, error: BaseException) -> StoreUnavailable:
    """No connection; nothing was sent."""
    why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return StoreUnavailable(f"{address} cannot be reached: {why}")


def cut(address: Address, why: str) -> Cut:
    return Cut(f"{address} cannot be reached: {why}")


def unknown(address: Address, why: str) -> OutcomeUnknown:
    """It was sent, and the answer was lost."""
    return OutcomeUnknown(f"{address}: {why}; what was asked may or may not have been done, repeating it is safe")


def unread(address: Address, why: str) -> StoreUnavailable:
    """A question that changes nothing was sent, and the answer was lost."""
    return StoreUnavailable(f"{address}: {why}; nothing was changed, ask again")
