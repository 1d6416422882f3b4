"""Run the stand-in as a command."""

from __future__ import annotations

import argparse
import os
import sys

from daybreak.adapters.plecs.stand_in import Faults, StandIn


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m daybreak.adapters.plecs.stand_in",
        description="A stand-in for the RPC server of PLECS, on this machine alone. It is not PLECS: it simulates a "
        "buck converter for tests and examples, and breaks on request.",
    )
    parser.add_argument("--port", type=int, default=1080, help="the port (1080, as PLECS); 0 takes a free one")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="processes for batches (all cores)")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that a simulation takes at least")
    parser.add_argument("--die-after", type=int, help="end this process after so many simulate calls")
    parser.add_argument("--hang-at", type=int, help="never answer this simulate call")
    parser.add_argument("--wrong-at", type=int, help="answer this simulate call with damaged data")
    parser.add_argument("--busy", type=int, default=0, help="refuse so many simulate calls at first")
    parser.add_argument("--fail-share", type=float, default=0.0, help="share of simulate calls that fail, 0 to 1")
    parser.add_argument("--seed", type=int, default=0, help="chooses which calls fail")
    given = vars(parser.parse_args())
    port, cores = given.pop("port"), max(given.pop("cores"), 1)
    try:
        stand_in = StandIn(Faults(**given), port=port, cores=cores, on_death=lambda: os._exit(1))
    except OSError as error:
        print(f"port {port} cannot be used: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{stand_in.address} (a stand-in, not PLECS)", flush=True)  # noqa: T201
    try:
        stand_in.serve()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
