"""`daybreak top`: a live view."""

from daybreak.cli.top.command import command

__all__ = ["command"]
