"""The state machine of a job, once, for all stores that do arithmetic in Python.

Each operation of the seam is a function here. It works on a `Transaction`, whose tables a store implements: the
operation reads what it needs, decides, and changes rows; the transaction writes them together. No module here decides
what policy decides, and none knows SQL.

    port.py            what a store reads and writes inside one transaction
    transaction.py     the rows that one transaction has read and changed, and how they are written
    row.py             one job, and where it is stored
    moves.py           where a job belongs; how a lease begins and ends; how a job ends
    gauges.py          the resources that a transaction takes and gives back
    resource_queue.py  who waits for a resource, and who may try when it is free
    insert, claim, settle, amend, records, purge, pass_time, adopt, exchange     the operations
"""
