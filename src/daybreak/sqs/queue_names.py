"""The queues of a prefix: their names, and the attributes that `init` gives them.

A test compares them with the CloudFormation template in `ops/`."""

from __future__ import annotations

import json
from typing import Final

from daybreak.core.units import Priority, bucket

BUCKETS: Final = tuple(priority.name.lower() for priority in Priority)  # the most urgent first
NAME_LIMIT: Final = 80
VISIBILITY: Final = 60  # seconds; a worker asks for its own lease when it receives
STATUS_VISIBILITY: Final = 10  # seconds in which a dispatcher commits what it received; a killed one delays it so long
LONG_POLL: Final = 20  # seconds
LEDGER_POLL: Final = 5  # seconds; SQS may still deliver to a long poll whose dispatcher is dead
DAY: Final = 86_400
RETENTION: Final = 4 * DAY
DEAD_RETENTION: Final = 14 * DAY
CONTROL_RETENTION: Final = 3600  # a request that is older helps nobody
MAX_TASK_RECEIVES: Final = 5  # a task message is run once; whoever receives it again returns it to the ledger
MAX_STATUS_RECEIVES: Final = 1000  # the ledger's store may be away for long: 1000 x 10 s


def task_queue(prefix: str, name: str) -> str:
    return f"{prefix}-task-{name}"


def bucket_of(priority: int) -> str:
    return bucket(priority).name.lower()


def status_queue(prefix: str) -> str:
    return f"{prefix}-status"


def retry_queue(prefix: str) -> str:
    return f"{prefix}-retry"


def task_dead_queue(prefix: str) -> str:
    return f"{prefix}-task-dead"


def status_dead_queue(prefix: str) -> str:
    return f"{prefix}-status-dead"


def aside_queue(prefix: str) -> str:
    return f"{prefix}-aside"


def control_prefix(prefix: str) -> str:
    return f"{prefix}-control-"


def control_queue(prefix: str, worker: str) -> str:
    """The queue of one worker. Worker names may contain what queue names may not, so only the id at the end counts."""
    return f"{control_prefix(prefix)}{worker[-36:]}"


def dead_queues(prefix: str) -> list[str]:
    return [task_dead_queue(prefix), status_dead_queue(prefix)]


def task_queues(prefix: str) -> list[str]:
    return [task_queue(prefix, name) for name in BUCKETS]


def fixed_queues(prefix: str) -> list[str]:
    """All queues but those of workers: dead-letter queues first, because others name them."""
    return [
        *dead_queues(prefix),
        aside_queue(prefix),
        *task_queues(prefix),
        status_queue(prefix),
        retry_queue(prefix),
    ]


def attributes(prefix: str, name: str, *, dead: str | None, visibility: int = VISIBILITY) -> dict[str, str]:
    """The attributes of a queue. `dead` is the ARN of its dead-letter queue."""
    found = {"ReceiveMessageWaitTimeSeconds": str(LONG_POLL), "MessageRetentionPeriod": str(RETENTION)}
    if name in dead_queues(prefix) or name == aside_queue(prefix):
        found |= {"MessageRetentionPeriod": str(DEAD_RETENTION), "VisibilityTimeout": str(STATUS_VISIBILITY)}
    elif name in task_queues(prefix):
        found |= {"VisibilityTimeout": str(visibility)}
    else:
        found |= {"VisibilityTimeout": str(STATUS_VISIBILITY)}
    if dead is not None:
        most = MAX_TASK_RECEIVES if name in task_queues(prefix) else MAX_STATUS_RECEIVES
        found["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": most})
    return found


def dead_queue_of(prefix: str, name: str) -> str | None:
    """The dead-letter queue of a queue; None if it has none."""
    if name in task_queues(prefix):
        return task_dead_queue(prefix)
    if name in (status_queue(prefix), retry_queue(prefix)):
        return status_dead_queue(prefix)
    return None
