"""Run the stand-in as a command."""

from __future__ import annotations

import argparse
import sys

from daybreak.adapters.wats.stand_in import TOKEN, Archive, Faults, StandIn


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m daybreak.adapters.wats.stand_in",
        description="A stand-in for a WATS server, on this machine alone. It is not WATS: it takes reports for tests "
        "and examples, and breaks on request. GET /stand-in shows what it counted.",
    )
    parser.add_argument("--port", type=int, default=8080, help="the port (8080); 0 takes a free one")
    parser.add_argument("--token", default=TOKEN, help=f"the token that requests must have ({TOKEN})")
    parser.add_argument("--folder", help="where to keep the reports, one file each (in memory alone)")
    parser.add_argument("--errors", type=int, default=0, help="answer so many submissions, the first, by HTTP 500")
    parser.add_argument("--busy", type=int, default=0, help="answer the next so many by HTTP 429 with Retry-After")
    parser.add_argument("--lose", type=int, default=0, help="store the next so many, but close without an answer")
    parser.add_argument("--drop", type=int, default=0, help="close at the next so many, without storing them")
    parser.add_argument("--retry-after", type=int, default=1, help="seconds that a Retry-After asks for (1)")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that a submission takes")
    parser.add_argument("--down-at", type=int, help="go away at this submission")
    parser.add_argument("--down-for", type=float, default=1.0, help="for so many seconds (1)")
    parser.add_argument("--fail-share", type=float, default=0.0, help="share of the others that fail, 0 to 1")
    parser.add_argument("--seed", type=int, default=0, help="chooses which submissions fail")
    given = vars(parser.parse_args())
    port, token, folder = given.pop("port"), given.pop("token"), given.pop("folder")
    try:
        stand_in = StandIn(Faults(**given), port=port, token=token, archive=Archive(folder))
    except OSError as error:
        print(f"port {port} cannot be used: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{stand_in.url} (a stand-in, not WATS; token: {token})", flush=True)  # noqa: T201
    try:
        stand_in.serve()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
