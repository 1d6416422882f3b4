"""`daybreak doctor`: finds what is wrong and says the cure.

finding    one thing that was looked at, and what to do about it
place      the settings, the file and the disk it lies on
work       queues, workers and jobs
"""

from daybreak.cli.doctor.command import command

__all__ = ["command"]
