"""Code changes while jobs wait: new versions, new names, arguments that no longer fit."""

from __future__ import annotations

import pytest

from daybreak import Daybreak, JobFailed, State
from daybreak.core.errors import BadInput, UnknownTask

LIMIT = "20s"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def old(url):
    """The app as it was when the jobs were submitted."""
    with Daybreak(url) as app:
        yield app


@pytest.fixture
def new(url):
    """The app as it is now."""
    with Daybreak(url) as app:
        yield app


def work(app: Daybreak):
    return app.worker(isolation="thread", processes=1)


def test_stored_arguments_are_upgraded_step_by_step(old, new):
    @old.task
    def greet(name: str) -> str:
        return name

    job = greet.submit("Ann Lee")

    @new.task(name="greet", version=3)
    def greet_politely(first: str, last: str, title: str) -> str:
        return f"{title} {first} {last}"

    @greet_politely.upgrade(from_version=1)
    def split(args: dict) -> dict:
        first, last = args["name"].split()
        return {"first": first, "last": last}

    @greet_politely.upgrade(from_version=2)
    def add_title(args: dict) -> dict:
        return {**args, "title": "Dr"}

    with work(new):
        assert new.job(job.id).result(LIMIT) == "Dr Ann Lee"
        assert greet_politely.submit("Bob", "Ray", "Mr").result(LIMIT) == "Mr Bob Ray"


def test_an_upgrade_may_give_the_plain_form_of_what_an_annotation_says(old, new):
    from datetime import date
    from decimal import Decimal

    @old.task
    def bill(amount: float) -> str:
        return str(amount)

    job = bill.submit(1.5)

    @new.task(name="bill", version=2)
    def bill_exactly(amount: Decimal, on: date) -> str:
        return f"{amount} on {on}"

    @bill_exactly.upgrade(from_version=1)
    def to_decimal(args: dict) -> dict:
        return {"amount": str(args["amount"]), "on": "2026-01-31"}

    with work(new):
        assert new.job(job.id).result(LIMIT) == "1.5 on 2026-01-31"


def test_a_job_of_a_version_that_nobody_knows_waits_uncharged(old, new):
    @old.task
    def greet(name: str) -> str:
        return name

    job = greet.submit("Ann")

    @new.task(name="greet", version=2)
    def greet_again(name: str, title: str) -> str:
        return name

    with work(new):
        assert greet_again.submit("Ann", "Dr").result(LIMIT) == "Ann"
        found = job.info()
    assert (found.state, found.attempt) == (State.QUEUED, 0)


def test_a_job_from_whose_version_no_unbroken_chain_of_upgrades_leads_waits_uncharged(old, new):
    @old.task(name="greet", version=2)
    def greet(name: str) -> str:
        return name

    job = greet.submit("Ann")

    @new.task(name="greet", version=5)
    def greet_again(name: str) -> str:
        return name

    for version in (1, 2, 4):  # 3 is missing

        @greet_again.upgrade(from_version=version)
        def same(args: dict) -> dict:
            return args

    assert greet_again.definition.versions == (5, 4)
    with work(new):
        assert greet_again.submit("Bob").result(LIMIT) == "Bob"
        found = job.info()
    assert (found.state, found.attempt) == (State.QUEUED, 0)

    greet_again.upgrade(from_version=3)(dict)
    assert greet_again.definition.versions == (5, 4, 3, 2, 1)
    with work(new):
        assert new.job(job.id).result(LIMIT) == "Ann"


def test_stored_arguments_that_no_longer_fit_fail_at_once_naming_the_parameter(old, new):
    @old.task(retry=5)
    def greet(name: str) -> str:
        return name

    job = greet.submit("Ann")

    @new.task(name="greet")
    def greet_otherwise(whom: str) -> str:
        return whom

    with work(new), pytest.raises(JobFailed, match="name") as failed:
        new.job(job.id).result(LIMIT)
    assert (failed.value.reason, failed.value.attempt) == ("error", 1)


def test_an_upgrade_that_fails_fails_the_job(old, new):
    @old.task
    def greet(name: str) -> str:
        return name

    job = greet.submit("Ann")

    @new.task(name="greet", version=2, retry=1)
    def greet_again(first: str) -> str:
        return first

    @greet_again.upgrade(from_version=1)
    def no_dict(args: dict) -> dict:
        return [args]

    with work(new), pytest.raises(JobFailed, match="return the arguments as a dict"):
        new.job(job.id).result(LIMIT)


def test_a_task_that_was_renamed_runs_jobs_under_its_old_name(old, new):
    @old.task
    def send_mail(to: str) -> str:
        return to

    job = send_mail.submit("ann")

    @new.task(aliases=("send_mail",))
    def deliver(to: str) -> str:
        return f"to {to}"

    assert new.find_task("send_mail").name == "deliver"
    with work(new):
        assert new.job(job.id).result(LIMIT) == "to ann"


def test_an_upgrade_that_leads_nowhere_is_refused(app):
    @app.task(version=2)
    def greet() -> None: ...

    with pytest.raises(BadInput, match="is never used"):
        greet.upgrade(from_version=2)(dict)


def test_an_unknown_task_is_named_with_what_comes_closest(app):
    @app.task
    def send_mail() -> None: ...

    with pytest.raises(UnknownTask, match="did you mean 'send_mail'"):
        app.find_task("send_mial")


def test_two_tasks_of_one_name_are_refused(app):
    @app.task
    def send() -> None: ...

    def other() -> None: ...

    with pytest.raises(BadInput, match="two tasks are named 'send'"):
        app.task(name="send")(other)


@pytest.mark.parametrize("wrong", [lambda: None, "text", (n for n in ())])
def test_what_is_no_task_is_refused(app, wrong):
    with pytest.raises(BadInput):
        app.task(wrong)


def test_a_generator_is_no_task(app):
    def numbers():
        yield 1

    with pytest.raises(BadInput, match="it does not yield"):
        app.task(numbers)


# -- several apps on one store -----------------------------------------------------------------------------------------


def test_apps_on_one_store_run_their_own_tasks_and_leave_the_others_alone(old, new):
    @old.task
    def ours() -> str:
        return "ours"

    @new.task
    def theirs() -> str:
        return "theirs"

    jobs = [ours.submit(), theirs.submit(), ours.submit()]
    with work(new):
        assert jobs[1].result(LIMIT) == "theirs"
        assert [job.info().attempt for job in jobs] == [0, 1, 0]
        with work(old):
            assert [job.result(LIMIT) for job in jobs] == ["ours", "theirs", "ours"]
    # Of a task that is another app's, the result can still be read.
    assert new.job(jobs[0].id).result() == "ours"
