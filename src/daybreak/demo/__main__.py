"""`python -m daybreak.demo [--quick]` is `daybreak demo`."""

import sys

from daybreak.demo.story import run

sys.exit(run(quick="--quick" in sys.argv[1:]))
