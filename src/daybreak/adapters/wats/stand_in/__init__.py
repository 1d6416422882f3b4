"""A stand-in for a WATS server, for tests, documents and examples. **It is not WATS**: it takes reports and gives
them back, and listens on this machine alone.

It speaks the protocol of WATS: a token in each request; reports in WSJF, which are checked, and known by their id, so
that a second upload replaces the first. And it breaks on request: `Faults` says how. It counts what happened.

    python -m daybreak.adapters.wats.stand_in --port 8080 --slow 0.2 --busy 3 --lose 2
    curl http://127.0.0.1:8080/stand-in                                      what it counted
    curl http://127.0.0.1:8080/stand-in/down -d '{"seconds": 10}'            away for so long
    curl http://127.0.0.1:8080/stand-in/faults -d '{"errors": 5}'            other faults, from now on

server   the HTTP server      archive   the reports and the counts      wsjf   what a report must have
faults   how it breaks"""

from daybreak.adapters.wats.stand_in.archive import Archive
from daybreak.adapters.wats.stand_in.faults import Faults
from daybreak.adapters.wats.stand_in.server import TOKEN, StandIn

__all__ = ["TOKEN", "Archive", "Faults", "StandIn"]
