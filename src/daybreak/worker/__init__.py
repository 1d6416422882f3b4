"""The worker: a supervisor that holds leases, and children that run the work.

source     what the supervisor sees of a store: leases in, outcomes out
worker     the loop: exchange what ended for what can start
launch     what it takes to start children
pool       slots of one kind, and the children behind them
child      one child as the supervisor sees it; children: keeps the wanted number of them alive
keeper     heartbeats, and the requests they bring back
gates      breakers hear how it went; healths: and so do retries; reported: each lease once
trial      jobs that were at a death run alone
isolation  how a child is started and ended: a process, or a thread
wire       what supervisor and child say to one another; ear: hears it; cell: what they share besides
outcomes   how a lease ends, from what was said and asked
inside     the program in a child
runner     one piece of work -> how it ended
"""
