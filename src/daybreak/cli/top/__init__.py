"""`daybreak top`: a terminal program (`app.py` and the screens), and a view that only shows (`live_view.py`)."""

from daybreak.cli.top.command import command

__all__ = ["command"]
