"""`daybreak doctor`: finds problems and suggests fixes.

setup      the settings, and the store they name
spool      jobs that wait for the store in a local file
schedules  schedules that do not tick as they should
sagas      sagas that are stuck, or that nothing drives
work       queues, workers and jobs
code       workers that run different code under one name
slots      jobs that hold every slot while they wait for jobs that need one
failures   jobs that failed in the last day
stuck      running jobs that will probably never end
priorities urgent jobs that wait while less urgent ones start
growth     queues that fill faster than they empty; jobs that are kept too long, or are large
attempts   tasks that mostly run into their time limit, or are retried in vain
"""

from daybreak.cli.doctor.command import command

__all__ = ["command"]
