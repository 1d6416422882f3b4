"""The demo: a night's work in half a minute, with real processes and real trouble.

buck      what the jobs compute: a converter's start-up, and its ripple
licence   a licence server that hangs up on some callers, and how a job asks it
tasks     the app that the workers run
plan      how much of it, on this machine
crew      the workers: real processes, of which one is killed
measure   what happened, read from the store's events
show      what is seen of it: live on a terminal, else as lines
story     the acts, one after the other
"""
