"""What an app declares: tasks, the context of a running job, admission rules, and the guard on imports."""
