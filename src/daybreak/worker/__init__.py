"""The worker: a supervisor, which claims jobs and holds their leases, and child processes, which run the jobs.

supervisor/              runs in the process that `daybreak worker` starts
    process              runs a worker as a process: signals, log lines, exit code
    worker               starts and stops the pools, and runs everything that they need
    shutdown             the steps of a stop: finish running jobs, cancel them, kill them, report every outcome
    claim_loop           the loop of one pool: reports outcomes, claims the jobs that can start
    exchange_retry       repeats an exchange with the store until the store replies
    lease_source         what the worker uses of the store; turns outcomes into settlements
    worker_source        what the worker needs of its source beside the leases, so that it needs no store
    store_source         the source of a worker that reaches the store: its record, learning, services
    orphaned_leases      finds leases that a lost reply left without an owner, and hands them back
    pool                 the slots for sync or for async tasks: gives leases to children, collects outcomes
    capacity             how many leases a pool can use now, and when it will need the next ones
    batch_size           how many leases one exchange should ask for
    prefetch             leases that are claimed shortly before a slot becomes free
    child_plan           what is needed to start children
    children             keeps the wanted number of children alive
    child                one child as the supervisor sees it: its leases, its speed, its messages
    heartbeats           extends leases, saves progress and checkpoints, receives requests to cancel or suspend
    job_logs             writes what jobs print and log to the store
    stack_requests       answers requests for the current stack of a job
    time_limits          enforces the time limits of jobs, and finds children that have stopped working
    hang_detector        finds jobs without a sign of life, logs their stacks, ends them
    quarantine           runs jobs that were present at a crash alone
    outcomes             decides the outcome of a lease from what its child reported and what the job was asked
    outcome_signals      what ended attempts say about the resources that they used, each attempt once
    breaker_reports      updates the circuit breakers of resources by these signals
    health_reports       publishes by these signals how often attempts succeed
    worker_record        the record that each worker publishes about itself
    idle_check           whether any job is left, for a worker that stops when there is none
child/                   runs in each child
    sync_loop            the main loop of a child for sync tasks: one job at a time
    async_loop           the main loop of a child for async tasks: many jobs on one event loop
    work_queue           work that a child has received and not started
    runner               runs one job and returns how it ended
    calls                runs several jobs of a batch task in one call, and finds those that make it fail
    reporting            sends outcomes, progress, checkpoints and log lines to the supervisor
    job_output           what jobs print and log, on its way to the supervisor
    output_streams       replaces stdout and stderr by streams that keep what a job prints
    failures             turns an exception into a `Failure`
    stacks               the stack of a running job
    setup                runs the setup functions of the app
    forked               ends processes that a task forked
    working_directory    the working directory in which every job starts
    commands             runs command lines as jobs
    exact_timers         an event loop whose timers are exact to microseconds
__main__                 the entry point of a child process
launcher                 starts and ends children: a process, or a thread where the code cannot be imported again
wire                     the messages between supervisor and child
wire_reader              reads messages on an event loop
slot_table               shared memory: which job runs in which slot, and since when
settings                 the settings of a worker
target                   finds the user's app by its target
"""
