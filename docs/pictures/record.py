"""Makes docs/pictures/demo.svg from a real run of the demo: python docs/pictures/record.py"""  # noqa: INP001

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from daybreak.demo import story

HERE = Path(__file__).parent


def main() -> int:
    # Without the live view, which would be recorded frame by frame.
    console = Console(record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", width=92)
    code = story.run(console=console, live=False)
    svg = console.export_svg(title="make demo", unique_id="demo")
    # Use the fonts of the reader's machine: a picture in a README must not load anything from other hosts.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (HERE / "demo.svg").write_text(svg, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
