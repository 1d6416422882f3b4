"""Daybreak's server and the document's routes in one process: python serve.py --url pulls.db --port 4141"""

import argparse
import sys

from enhanced_locking import QueueConfig
from enhanced_locking.routes import routes_of

from daybreak import Daybreak
from daybreak.server.process import Bind, serve
from daybreak.server.settings import ServerSettings


def main() -> int:
    options = argparse.ArgumentParser(description="Serve the REST API and the routes of enhanced locking.")
    options.add_argument("--url", default="pulls.db", help="the store of the locks (pulls.db)")
    options.add_argument("--port", type=int, default=4141, help="the port (4141)")
    options.add_argument("--no-metrics", action="store_true", help="no queue status, and no atlantis_* metrics")
    given = options.parse_args()
    config = QueueConfig(enable_metrics=not given.no_metrics)
    settings = ServerSettings(metric_names=("atlantis",) if config.enable_metrics else ())
    app = Daybreak(given.url, by="server")
    return serve(app, Bind(port=given.port), settings, say_where, [routes_of(config)])


def say_where(address: str, link: str | None) -> None:
    print(f"Server at {address}. Ctrl-C stops it.", file=sys.stderr)
    if link is not None:
        print(f"Sign in, once, within an hour: {link}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
