"""Sagas: steps that run one after the other, each a job, and are undone in reverse order if one of them fails.

| module | what it holds |
|---|---|
| `saga` | `Saga`: the steps, and `start` |
| `saga_run` | the handle on a saga that was started: wait, result, cancel, resume |
| `saga_info` | what people and programs see of one |

`policy/sagas.py` decides what follows from the end of a job; `client/saga_record.py` and `client/saga_changes.py` hold
what the store keeps and its changes; `services/saga_driver.py` is what every worker and server runs for sagas.
"""
