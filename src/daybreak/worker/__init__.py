"""The worker: a supervisor that claims jobs and holds their leases, and child processes that run them.

supervisor/              runs in the process that `daybreak worker` starts
    worker               starts and stops the pools, and keeps everything around them alive
    process              the worker as a program: signals, log lines, exit code
    claim_loop           the loop of one pool: report what ended, claim what can start
    exchange_retry       repeats a store call until it is answered
    lease_source         what the worker sees of the store: leases in, outcomes out
    pool                 the slots of one kind (sync or async) and the children behind them
    children, child      keep the wanted number of children alive; one child as the supervisor sees it
    child_plan           what it takes to start a child
    heartbeats           extend leases, carry progress and checkpoints, bring back cancel and suspend requests
    time_limits          end jobs that run longer than they may
    hang_detector        find jobs without a sign of life
    quarantine           run jobs that were present at a crash alone (quarantine_terms: for how long)
    prefetch             leases taken a moment before a slot is free
    batch_size           how much one exchange may carry
    orphaned_leases      leases that a lost reply left with nobody
    outcomes             what a child said and what was asked -> how the lease ends
    breaker_reports      tell breakers how it went; health_reports: and the retry budget; reported_leases: each once
    worker_record        what the worker publishes about itself
    idle_check           whether anything is left to do, for a worker that stops when there is not
child/                   runs in each child
    sync_loop            main loop of a child for sync tasks: one job at a time
    async_loop           main loop of a child for async tasks: many jobs on one event loop
    work_queue           work that a child has received and not started
    runner               one job -> its outcome
    reporting            progress, checkpoints and log lines of a running job
    failures, stacks     exceptions as data; where a job stands
    setup, forked        setup functions of the app; processes that a task forked
    working_directory    restored between jobs
    commands             command lines as jobs
    exact_timers         timers of less than a millisecond
launcher                 starts and ends children: a process, or a thread where user code cannot be imported again
wire, wire_reader        what supervisor and child say to each other
slot_table               memory they share: which job runs in which slot, and since when
settings, target         how a worker is set up; finding the user's app
"""
