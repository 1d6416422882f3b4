"""A stand-in for the RPC server of PLECS, for tests, documents and examples. **It is not PLECS**: it knows one circuit,
a synchronous buck converter, and listens on this machine alone.

It speaks the protocol of PLECS: models are loaded before they are simulated, one command runs at a time and a second is
refused, a list of options is spread over the cores and answered in order, with a text for an element that failed. And
it breaks on request: `Faults` says how.

    python -m daybreak.adapters.plecs.stand_in --port 1080 --slow 0.1 --die-after 247

server   the HTTP server and its methods      faults   how it breaks      buck   the circuit"""

from daybreak.adapters.plecs.stand_in.faults import Faults
from daybreak.adapters.plecs.stand_in.server import StandIn

__all__ = ["Faults", "StandIn"]
