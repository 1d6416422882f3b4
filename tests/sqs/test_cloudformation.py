"""The CloudFormation template in ops/: it creates what `daybreak sqs init` creates, and its policies allow what the
dispatcher and the workers do, and no more."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from botocore.session import get_session
from sqs_stage import Stage, open_stage, until
from sqs_tasks import add, echo, nap

from daybreak.core.model import Done, Failed, Failure
from daybreak.sqs import queue_names as names
from daybreak.sqs import setup
from daybreak.sqs.address import address_of
from daybreak.sqs.queues import open_queues

TEMPLATE = Path(__file__).parents[2] / "ops" / "cloudformation" / "daybreak-sqs.yaml"
ACTIONS = {
    "send_message_batch": "SendMessage",
    "delete_message_batch": "DeleteMessage",
    "change_message_visibility_batch": "ChangeMessageVisibility",
}
# Of no attribute of a queue, but of its place, its messages or its moment.
NOT_COMPARED = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", "ApproximateNumberOf")


def aws(service: str, endpoint: str) -> Any:
    return get_session().create_client(service, region_name="eu-west-1", endpoint_url=endpoint)


def create_stack(endpoint: str, prefix: str, **parameters: str) -> str:
    name = f"stack-{prefix}"
    given = [{"ParameterKey": key, "ParameterValue": value} for key, value in {"Prefix": prefix, **parameters}.items()]
    aws("cloudformation", endpoint).create_stack(
        StackName=name, TemplateBody=TEMPLATE.read_text(), Parameters=given, Capabilities=["CAPABILITY_IAM"]
    )
    return name


def queues_of(endpoint: str, prefix: str) -> dict[str, dict[str, Any]]:
    """The queues of a prefix and their attributes. The prefix is written P, so that two can be compared."""
    client = aws("sqs", endpoint)
    found = {}
    for url in client.list_queues(QueueNamePrefix=f"{prefix}-").get("QueueUrls", []):
        attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        kept = {key: value for key, value in attributes.items() if not key.startswith(NOT_COMPARED)}
        if "RedrivePolicy" in kept:
            policy = json.loads(kept["RedrivePolicy"])
            policy["deadLetterTargetArn"] = policy["deadLetterTargetArn"].replace(prefix, "P")
            kept["RedrivePolicy"] = {key: str(value) for key, value in policy.items()}
        found[url.rsplit("/", 1)[-1].replace(prefix, "P")] = kept
    return found


def test_the_template_passes_cfn_lint():
    linter = Path(sys.executable).with_name("cfn-lint")
    ran = subprocess.run([linter, TEMPLATE], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr


async def test_the_template_creates_the_queues_of_init_with_their_attributes(endpoint):
    stacked, made = f"c{secrets.token_hex(4)}", f"i{secrets.token_hex(4)}"
    create_stack(endpoint, stacked, Visibility="90")
    async with open_queues(address_of(f"sqs://eu-west-1/{made}?endpoint={endpoint}")) as queues:
        await setup.create(queues, visibility=90)
    wanted = queues_of(endpoint, made)
    assert len(wanted) == len(names.fixed_queues(made))
    assert queues_of(endpoint, stacked) == wanted


async def test_init_after_the_template_creates_nothing(endpoint):
    prefix = f"c{secrets.token_hex(4)}"
    create_stack(endpoint, prefix)
    async with open_queues(address_of(f"sqs://eu-west-1/{prefix}?endpoint={endpoint}")) as queues:
        before = queues_of(endpoint, prefix)
        assert await setup.create(queues) == []
        assert queues_of(endpoint, prefix) == before


# -- policies ----------------------------------------------------------------------------------------------------------


class Recorder:
    """A client that notes each action and its queue."""

    def __init__(self, client: Any, used: set[tuple[str, str]]) -> None:
        self._client = client
        self._used = used

    def __getattr__(self, operation: str) -> Any:
        action = ACTIONS.get(operation) or "".join(word.capitalize() for word in operation.split("_"))

        def call(**parameters: Any) -> Any:
            queue = parameters.get("QueueName") or parameters["QueueUrl"].rsplit("/", 1)[-1]
            self._used.add((action, queue))
            return getattr(self._client, operation)(**parameters)

        return call


def allowed(endpoint: str, stack: str, output: str) -> list[tuple[str, str]]:
    """The pairs of action and pattern of queue names that a policy of the stack allows."""
    outputs = aws("cloudformation", endpoint).describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    arn = {one["OutputKey"]: one["OutputValue"] for one in outputs}[output]
    iam = aws("iam", endpoint)
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    document = json.loads(document) if isinstance(document, str) else document
    return [
        (action.removeprefix("sqs:"), resource.rsplit(":", 1)[-1])
        for statement in document["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
    ]


def denied(used: set[tuple[str, str]], policy: list[tuple[str, str]]) -> set[tuple[str, str]]:
    return {
        (action, queue)
        for action, queue in used
        if not any(action == one and fnmatch.fnmatchcase(queue, pattern) for one, pattern in policy)
    }


def unused(used: set[tuple[str, str]], policy: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """What a policy allows and nobody did. The queues of other priorities are as that of NORMAL."""
    used = {(action, _as_normal(queue)) for action, queue in used}
    return {
        (action, pattern)
        for action, pattern in policy
        if not any(action == one and fnmatch.fnmatchcase(queue, _as_normal(pattern)) for one, queue in used)
    }


def _as_normal(queue: str) -> str:
    for name in ("emergency", "critical", "high", "low", "background"):
        queue = queue.replace(f"-task-{name}", "-task-normal")
    return queue


async def test_the_policies_allow_what_dispatcher_and_worker_do_and_nothing_else(endpoint, tmp_path):
    prefix = f"c{secrets.token_hex(4)}"
    stack = create_stack(endpoint, prefix)
    ledger: set[tuple[str, str]] = set()
    worker: set[tuple[str, str]] = set()
    async with open_stage(endpoint, prefix, tmp_path) as stage:
        await use_everything(stage, ledger, worker)
    for used, output in ((ledger, "DispatcherPolicy"), (worker, "WorkerPolicy")):
        policy = allowed(endpoint, stack, output)
        assert denied(used, policy) == set(), output
        # Control queues of workers that are silent are deleted after an hour, which no test waits for.
        rest = {one for one in unused(used, policy) if one != ("DeleteQueue", f"{prefix}-control-*")}
        assert rest == set(), output


async def use_everything(stage: Stage, ledger: set[tuple[str, str]], worker: set[tuple[str, str]]) -> None:
    """A job that completes, one that fails for a while, one that is cancelled, and foreign messages in each queue."""
    await stage.dispatcher(wrap=lambda client: Recorder(client, ledger))
    player = await stage.player(wrap=lambda client: Recorder(client, worker))
    await setup.told_files(player.source._queues)
    done, broken, cancelled = add.submit(1, 2), echo.submit("x"), nap.submit(1, str(stage.file))
    leases = {}
    while len(leases) < 3:
        lease = await player.take_one()
        leases[lease.job] = lease
    await player.beat(leases[done.id])
    await player.end(leases[done.id], Done(b"3"))
    await player.end(leases[broken.id], Failed(Failure(message="down", verdict="transient")))
    background = [asyncio.create_task(part) for part in player.source.background()]
    cancelled.cancel()
    reply = await until(lambda: heard(player, leases[cancelled.id]), "the cancel came")
    assert reply.cancel
    for name in ("status", "task-dead", "task-normal"):
        await stage.queues.send(f"{stage.address.prefix}-{name}", ["not of Daybreak"])
    await stage.asides(2)
    await until(lambda: taken(player, worker, stage), "the worker set a message aside")
    await player.source.close()
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)


async def heard(player: Any, lease: Any) -> Any:
    reply = await player.beat(lease)
    return reply if reply.cancel else None


async def taken(player: Any, worker: set[tuple[str, str]], stage: Stage) -> bool:
    await player.take()
    return ("SendMessage", f"{stage.address.prefix}-aside") in worker
