"""`daybreak doctor`: finds problems and suggests fixes.

setup      the settings, and the store they name
work       queues, workers and jobs
code       workers that run different code under one name
slots      jobs that hold every slot while they wait for jobs that need one
failures   jobs that failed in the last day
"""

from daybreak.cli.doctor.command import command

__all__ = ["command"]
