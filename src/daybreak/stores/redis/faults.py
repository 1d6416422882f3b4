"""Translates errors of the server and the network into errors that say what to do."""

from __future__ import annotations

import re

from daybreak.core.errors import (
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    StoreUnsuitable,
)
from daybreak.stores.redis.address import Address


class ConnectionCut(StoreUnavailable):
    """The server accepted the connection, and it was lost before it could be used."""


# By the first word of an error reply. None of these replies has changed anything: the server refuses a script's first
# write, not a later one.
_MESSAGES: dict[str, tuple[type[StoreError], str]] = {
    "LOADING": (StoreUnavailable, "is still loading its data; retry in a moment"),
    "MASTERDOWN": (StoreUnavailable, "is a replica that has lost its master; retry, or connect to the new master"),
    "TRYAGAIN": (StoreUnavailable, "is moving this namespace to another node; retry in a moment"),
    "CLUSTERDOWN": (StoreUnavailable, "belongs to a cluster that is down: check the cluster's state"),
    "READONLY": (StoreUnavailable, "is a read-only replica now; retry, or connect to the new master"),
    "NOREPLICAS": (StoreUnavailable, "has too few replicas to accept writes: check its replicas"),
    "BUSY": (StoreUnavailable, "is busy with a script that does not end: SCRIPT KILL ends it"),
    "MISCONF": (StoreReadOnly, "cannot save to its disk and refuses writes: check the server's disk and log"),
    "OOM": (
        StoreFull,
        "has reached its memory limit (maxmemory), nothing was written: raise maxmemory or purge jobs",
    ),
    "NOAUTH": (StoreUnsuitable, "asks for a password and was given none: put it into the URL, redis://:password@host"),
    "WRONGPASS": (StoreUnsuitable, "refuses this user name and password: check both in the URL"),
    "NOPERM": (StoreUnsuitable, "does not permit this user to run what the store needs"),
}
# After these errors the client must reconnect, to find a server that accepts writes.
RECONNECT_ERRORS = ("READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING")
_SCRIPT_POSITION = re.compile(r" ?script: \S+,? on @user_script:\d+\.?|@user_script: ?\d+: ?", re.ASCII)


def error_code(reply: str) -> str:
    """The first word of an error reply, also where the error of a script wraps it."""
    first = reply.removeprefix("ERR ").split(" ", 1)[0].removeprefix("-").rstrip(":")
    if first in _MESSAGES or first in ("NOSCRIPT", "MOVED", "ASK"):
        return first
    found = re.search(r"@user_script: ?\d+: -?([A-Z]+) ", reply)
    if found and found[1] in _MESSAGES:
        return found[1]
    if "-OOM" in reply or "OOM command not allowed" in reply:
        return "OOM"
    if "read only replica" in reply:
        return "READONLY"
    if "user executing the script can't" in reply:
        return "NOPERM"
    return first


def is_channel_error(reply: str) -> bool:
    """Whether the user lacks permission for the channels. A new user of Redis 7 has no channels."""
    return error_code(reply) == "NOPERM" and "channel" in reply


def grant_command(address: Address, prefix: bytes) -> str:
    """The command that gives a user the channels of a namespace."""
    return f"ACL SETUSER {address.username or 'default'} '&{prefix.decode()}*'"


def no_channels(address: Address, prefix: bytes) -> StoreUnsuitable:
    return StoreUnsuitable(
        f"{address} does not permit this user to publish on the channels that wake others, nothing was written; let an "
        f"administrator run {grant_command(address, prefix)}"
    )


def error_reply(address: Address, reply: str) -> StoreError:
    """The error for an error reply of the server."""
    if error_code(reply) == "TOONEW":
        versions = reply.partition("(")[2].partition(")")[0]
        return StoreTooNew(
            f"{address} was written by a newer Daybreak ({versions}): upgrade this installation; nothing was changed"
        )
    known = _MESSAGES.get(error_code(reply))
    if known is None and "max number of clients" in reply:
        return StoreUnavailable(
            f"{address} has reached its limit of clients (maxclients): raise it, or close other clients"
        )
    if known is None and ("invalid password" in reply or "AUTH" in reply):
        return StoreUnsuitable(
            f"{address} refuses this password, or has no password set: check the password in the URL"
        )
    if known is None and "DB index is out of range" in reply:
        return StoreUnsuitable(f"{address} has no database {address.db}: correct the number in the URL")
    if known is None:
        return StoreError(f"{address} returned an error: {_SCRIPT_POSITION.sub('', reply)}")
    kind, message = known
    detail = f": {reply}" if error_code(reply) in ("NOPERM", "MISCONF") else ""
    return kind(f"{address} {message}{detail}")


def unreachable(address: Address, error: BaseException) -> StoreUnavailable:
    """The error for a failed attempt to connect; nothing was sent."""
    why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return StoreUnavailable(f"{address} cannot be reached: {why}")


def connection_cut(address: Address, why: str) -> ConnectionCut:
    return ConnectionCut(f"{address} cannot be reached: {why}")


def outcome_unknown(address: Address, why: str) -> OutcomeUnknown:
    """The error for a write that was sent and whose reply was lost."""
    return OutcomeUnknown(f"{address}: {why}, so this may or may not have happened; retry, which is safe")


def read_failed(address: Address, why: str) -> StoreUnavailable:
    """The error for a read whose reply was lost."""
    return StoreUnavailable(f"{address}: {why}, nothing was changed; retry")
