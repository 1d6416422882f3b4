"""A client that duplicates, reorders, delays and refuses, in front of the one of aiobotocore."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any


class Faulty:
    """`duplicate` is the share of received messages that are delivered once more, as SQS may. Visibility is extended
    only `extensions` times per message, as SQS refuses beyond 12 hours. `refuses` are operations that fail so many
    times."""

    def __init__(
        self,
        client: Any,
        *,
        seed: int = 0,
        duplicate: float = 0.0,
        delay: float = 0.0,
        extensions: int | None = None,
        refuses: dict[str, int] | None = None,
    ) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._duplicate = duplicate
        self._delay = delay
        self._extensions = extensions
        self._refuses = dict(refuses or {})
        self._again: dict[str, list[dict[str, Any]]] = {}
        self._extended: Counter[str] = Counter()
        self.duplicated = 0
        self.refused = 0

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)

        async def faulty(**parameters: Any) -> Any:
            if self._refuses.get(operation, 0) > 0:
                self._refuses[operation] -= 1
                self.refused += 1
                raise _error(operation)
            if self._delay:
                await asyncio.sleep(self._delay * self._chance.random())
            if operation == "change_message_visibility_batch" and self._extensions is not None:
                return await self._extend(call, parameters)
            reply = await call(**parameters)
            if operation == "receive_message":
                self._disturb(parameters["QueueUrl"], reply)
            return reply

        return faulty

    async def _extend(self, call: Any, parameters: dict[str, Any]) -> Any:
        entries = parameters["Entries"]
        self._extended.update(entry["ReceiptHandle"] for entry in entries)
        allowed = [entry for entry in entries if self._extended[entry["ReceiptHandle"]] <= self._extensions]
        refused = [entry for entry in entries if entry not in allowed]
        self.refused += len(refused)
        reply = await call(**{**parameters, "Entries": allowed}) if allowed else {}
        message = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
        failed = [{"Id": entry["Id"], "Code": "InvalidParameterValue", "Message": message} for entry in refused]
        return {**reply, "Failed": [*reply.get("Failed", []), *failed]}

    def _disturb(self, queue: str, reply: dict[str, Any]) -> None:
        messages = reply.setdefault("Messages", [])
        again = self._again.pop(queue, [])
        self._again[queue] = [message for message in messages if self._chance.random() < self._duplicate]
        self.duplicated += len(again)
        messages += again
        self._chance.shuffle(messages)


def _error(operation: str) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": "ServiceUnavailable", "Message": "injected"}}, operation)
