"""Daybreak's server and the routes of executions in one process: python serve.py --port 8000"""

import argparse
import sys

from execution_queue.routes import admin_routes, routes
from executions import app

from daybreak.server.process import Bind, serve
from daybreak.server.settings import ServerSettings


def main() -> int:
    options = argparse.ArgumentParser(description="Serve the REST API and the routes of executions.")
    options.add_argument("--port", type=int, default=8000, help="the port (8000)")
    given = options.parse_args()
    return serve(app, Bind(port=given.port), ServerSettings(), say_where, [routes, admin_routes])


def say_where(address: str, link: str | None) -> None:
    print(f"Server at {address}. Ctrl-C stops it.", file=sys.stderr, flush=True)
    if link is not None:
        print(f"Sign in, once, within an hour: {link}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
