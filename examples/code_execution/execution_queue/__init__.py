"""An execution queue with the names of the Integr8sCode document, on top of Daybreak's API.

| module | what it holds |
|---|---|
| `events` | the events and commands that the parts send each other |
| `pod_worker`, `pods`, `sandbox` | runs pods, once each, where nothing can get out |"""
