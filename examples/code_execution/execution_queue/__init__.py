"""An execution queue with the names of the Integr8sCode document, on top of Daybreak's API.

| module | what it holds |
|---|---|
| `service` | `ExecutionQueueService`: enqueue, try_schedule, release, update_priority, remove, and the counts |
| `admin` | `AdminExecutionService`: lists, priorities, the queue |
| `settings` | `SystemSettings` and `RuntimeSettingsLoader`: the cap, while executions run |
| `metrics` | `QueueMetrics`: the five instruments |
| `routes` | the HTTP routes, for users and for administrators |
| `statuses`, `policies` | the words for states; the retry policies |
| `events` | the events and commands that the parts send each other |
| `broker` | publishes events; writes what pods print into the logs of their executions |
| `pod_worker`, `pods`, `sandbox` | runs pods, once each, where nothing can get out |
| `allocations` | what all pods may use together |

The tasks and the saga are in `executions.py` beside this package, as those of your own program would be."""
