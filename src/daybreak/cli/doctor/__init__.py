"""`daybreak doctor`: finds what is wrong and says the cure.

place      the settings, and the store they name
work       queues, workers and jobs
code       workers that run different code under one name
slots      jobs that wait for jobs which need their own slots
failures   what failed in the last day
"""

from daybreak.cli.doctor.command import command

__all__ = ["command"]
