"""What an app declares: its tasks and their options, the context of a running job, and admission rules."""
