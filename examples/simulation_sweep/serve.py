"""Daybreak's server and the article's route in one process: python serve.py --url simulations.db --port 8000"""

import argparse
import sys

from orchestration.routes import routes

from daybreak import Daybreak
from daybreak.server.process import Bind, serve
from daybreak.server.settings import ServerSettings


def main() -> int:
    options = argparse.ArgumentParser(description="Serve the REST API and GET /api/tasks/{task_id}.")
    options.add_argument("--url", default="simulations.db", help="the store of the simulations (simulations.db)")
    options.add_argument("--port", type=int, default=8000, help="the port (8000)")
    given = options.parse_args()
    app = Daybreak(given.url, by="server")
    return serve(app, Bind(port=given.port), ServerSettings(), say_where, [routes])


def say_where(address: str, link: str | None) -> None:
    print(f"Server at {address}. Ctrl-C stops it.", file=sys.stderr)
    if link is not None:
        print(f"Sign in, once, within an hour: {link}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
