"""The demo: a night's work in half a minute, with real processes and real faults.

buck      what the jobs compute: a converter's start-up, and its ripple
licence   a licence server that drops some connections, and the client that jobs use
tasks     the app that the workers run
plan      the size of the demo on this machine
workers   the workers: real processes, one of which is killed
measure   what happened, read from the store's events
show      the output: a live view on a terminal, else lines
story     the steps of the demo, in order
"""
