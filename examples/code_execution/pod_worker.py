"""Runs pods: python pod_worker.py --broker nats://localhost:4222 --pods pods

A process of its own that knows no store: it takes commands from a topic, runs the code of each in a sandbox, and
publishes its output and its outcome. Start as many as you like; the broker divides the commands among them."""

import sys

from execution_queue.pod_worker import main

if __name__ == "__main__":
    sys.exit(main())
