"""`daybreak queues` and `daybreak workers`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from daybreak.core.model import QueueSettings


def queue(place, name: str) -> QueueSettings:
    return place.do(lambda client: client.queue(name))


def test_queues_are_listed_with_what_is_in_them(cli, place):
    place.submit(queue="mail")
    place.submit(queue="mail", delay="1h")
    place.run(queue="sim")
    place.do(lambda client: client.set_queue("sim", max_running=4, capacity=1000, weight=3))
    lines = [line.split() for line in cli("queues").stdout.splitlines()]
    assert lines[1] == ["mail", "1", "1", "0", "0", "0", "0", "0"]
    assert lines[2] == ["sim", "0", "0", "0", "0", "1/4", "0", "0", "capacity", "1,000,", "weight", "3"]
    assert lines[-1] == ["2", "queues.", "Show", "one", "with:", "daybreak", "queues", "show", "mail"]


def test_no_queue_is_no_error(cli, place):
    place.do(lambda client: client.tallies())
    assert cli("queues").stdout.startswith("No queues yet")


def test_a_pause_that_holds_jobs_is_told(cli, place):
    place.submit(queue="mail")
    assert cli("queues", "pause", "mail").stdout == "mail is paused. Resume it with: daybreak queues resume mail\n"
    assert queue(place, "mail").paused
    assert "1 job waits in paused queues. Resume with: daybreak queues resume mail" in cli("queues").stdout
    assert cli("queues", "resume", "mail").stdout == "mail is resumed.\n"
    assert not queue(place, "mail").paused


def test_one_queue(cli, ask, place):
    job = place.submit(queue="mail", priority=3)
    place.submit(queue="mail", priority="high", delay="1h")
    told = cli("queues", "show", "mail").stdout
    assert f"Next: mail {job}" in told
    assert [line.split()[:2] for line in told.splitlines() if line.startswith("high")] == [["high", "2"]]
    data = ask("queues", "show", "mail", "--json")
    assert data["by_priority"] == {str(n): int(n in (2, 3)) for n in range(11)}
    assert data["by_state"]["queued"] == data["by_state"]["scheduled"] == 1
    assert (data["paused"], data["max_running"], data["patience"], data["by_task"]) == (False, None, 120.0, {"mail": 2})
    assert ask("queues", "--json") == {"queues": [data]}


def test_settings_are_changed_while_it_runs(cli, place):
    place.submit(queue="mail")
    words = ["max_running=4", "capacity=10000", "discipline=aging", "patience=10m", "weight=3", "paused=yes"]
    told = cli("queues", "set", "mail", *words).stdout
    assert told == ("mail: max_running 4, capacity 10,000, discipline aging, patience 10 min, weight 3, paused yes.\n")
    assert queue(place, "mail") == QueueSettings(
        paused=True, max_running=4, capacity=10_000, discipline="aging", patience=timedelta(minutes=10), weight=3
    )
    assert cli("queues", "set", "mail", "max_running=none").stdout == "mail: max_running no limit.\n"
    assert queue(place, "mail").max_running is None


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["set", "mail", "max_runing=4"], 2, "no setting 'max_runing'; did you mean 'max_running'?"),
        (["set", "mail", "zzz=4"], 2, "the settings are paused, max_running"),
        (["set", "mail", "ranked=true"], 2, "no setting 'ranked'"),
        (["set", "mail", "max_running=four"], 2, "write a whole number from 0 to 2,147,483,648, or none"),
        (["set", "mail", "max_running=-1"], 2, "write a whole number"),
        (
            ["set", "mail", "max_running=99999999999999999999"],
            2,
            "=99999999999999999999: write a whole number from 0 to 2,",
        ),
        (["set", "mail", "capacity=2147483649"], 2, "from 0 to 2,147,483,648"),
        (
            ["set", "mail", "max_running="],
            2,
            "max_running=: write a whole number from 0 to 2,147,483,648, or none for no",
        ),
        (["set", "mail", "weight="], 2, "weight=: write a whole number from 1 to 2,147,483,648\n"),
        (["set", "mail", "weight=0"], 2, "from 1 to 2,147,483,648\n"),
        (["set", "mail", "patience="], 2, "patience: '' is not a duration; write '90s', '10m', '1h30m'\n"),
        (["set", "", "max_running=1"], 2, "the value is empty"),
        (["pause", "mail", ""], 2, "the value is empty"),
        (["resume", ""], 2, "the value is empty"),
        (["show", ""], 2, "the value is empty"),
        (["set", "mail", "paused=perhaps"], 2, "write true or false"),
        (["set", "mail", "discipline=lifo"], 2, "write fifo or aging"),
        (["set", "mail", "patience=10"], 2, "is not a duration"),
        (["set", "mail", "max_running"], 2, "write name=value"),
        (["set", "mail"], 2, "Missing argument"),
        (
            ["set", "mial", "weight=2"],
            4,
            "no queue named 'mial'; did you mean 'mail'? If the name is right, add --new.",
        ),
        (["pause", "mial"], 4, "did you mean 'mail'?"),
        (["pause", "mail", "mial"], 4, "did you mean 'mail'?"),
        (["resume", "other"], 4, "no queue named 'other': it has neither jobs nor settings"),
        (["show", "mial"], 4, "did you mean 'mail'?"),
    ],
)
def test_what_cannot_be_right_changes_nothing(cli, place, words, code, told):
    place.submit(queue="mail")
    assert told in cli("queues", *words, code=code).stderr
    assert queue(place, "mail") == QueueSettings()


def test_a_queue_may_be_set_before_its_first_job(cli, place):
    assert "queue 'mail' has no jobs yet" in cli("queues", "pause", "mail").stderr
    assert queue(place, "mail").paused
    cli("queues", "set", "mail2", "weight=2", "--new")
    assert queue(place, "mail2").weight == 2


# -- workers -----------------------------------------------------------------------------------------------------------


def test_workers_are_live_or_gone(cli, ask, place):
    place.worker("mail", ("mail", 2), "other", queues=("a", "b"), running=2, done=1234, failed=5)
    place.worker("mail", id="w2-id", name="\x1b[31mw2", seen=timedelta(minutes=3))
    place.worker("mail", id="w3-id", name="w3", stopping=True)
    told = cli("workers").stdout
    assert "\x1b" not in told
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line}
    assert rows["w1"][1:] == ["live", "box", "7", "a,", "b", "2", "2", "1,234", "5", "unknown", "5", "min", "now"]
    assert rows[r"\x1b[31mw2"][1] == "gone"
    assert rows["w3"][1] == "stopping"
    assert told.splitlines()[-1] == "2 live workers, 1 gone. Watch them with: daybreak top"
    assert {worker["id"] for worker in ask("workers", "--live", "--json")["workers"]} == {"w1-id", "w3-id"}
    [first] = [worker for worker in ask("workers", "--json")["workers"] if worker["id"] == "w1-id"]
    assert first["tasks"][1] == {"task": "mail", "version": 2}
    assert first["lease_for"] == 7.0


def test_no_worker_is_no_error(cli, place):
    place.submit()
    assert cli("workers").stdout == "No workers. Start one with: daybreak worker TARGET\n"


def test_a_record_that_cannot_be_read_is_passed_by(cli, place):
    from daybreak.core.model import Put

    place.worker("mail")
    place.do(lambda client: client.store.put([Put(kind="worker", name="x", value=b'{"pid": "seven"}')]))
    assert "1 live worker." in cli("workers").stdout
