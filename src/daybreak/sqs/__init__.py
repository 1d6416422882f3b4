"""The SQS transport: workers that reach nothing but SQS, and a ledger that stays in its store.

address          sqs://region/prefix
queue_names      the queues of a prefix, and their attributes
queues           sends, receives, extends and deletes messages
setup            creates, counts and deletes the queues of a prefix; redrives dead letters
messages         what is in a message, as versioned JSON
claim_check      payloads that are too large for a message go to the place of contents
set_aside        keeps messages that cannot be applied, with the reason

at the ledger
    dispatcher   claims jobs and sends them; applies what comes back
    dispatched   the leases that lie in task queues, and how many more may
    grants       what a job may reach where it runs, such as signed URLs
    ledger       applies the messages of workers to the store, by the policy
    deliveries   the records of which delivery of a job counts
    remote_workers   the records of workers, written from their heartbeats

at the worker
    remote_source    the source of a worker that reaches only SQS
    task_polls       receives task messages, the most urgent first
    control          what the ledger asks of this worker
    spot_notice      the notice that this machine will be taken away

scale            how many workers an autoscaler should run
"""
