"""A bridge between a message broker and the queue: messages become jobs, and events of jobs become messages.

| module | what it holds |
|---|---|
| `declaration` | what `app.bridge(...)` was given, checked |
| `channels` | the brokers, behind one protocol: NATS JetStream, Kafka, RabbitMQ, Redis streams |
| `messages` | what an incoming message says: the versioned schema |
| `intake` | makes one job per message; acknowledges it when the store has the job |
| `finish` | ends the jobs that messages speak of |
| `cloud_events` | an event as a CloudEvent |
| `event_publisher` | sends events from the stored cursor |
| `runner` | runs a bridge, and reconnects |
| `process` | `daybreak bridge` |
"""

from daybreak.feeds.bridge.channels.channel import Message
from daybreak.feeds.bridge.declaration import Bridge
from daybreak.feeds.bridge.messages import Cancel, Completed, Failed, Submit, TimedOut
from daybreak.feeds.bridge.runner import BridgeRunner

__all__ = ["Bridge", "BridgeRunner", "Cancel", "Completed", "Failed", "Message", "Submit", "TimedOut"]
