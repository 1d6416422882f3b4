"""Errors as data: they go to other processes whole, and say what they were given."""

from __future__ import annotations

import copy
import inspect
import pickle
from datetime import timedelta

import pytest

from daybreak.core import errors
from daybreak.core.errors import BadInput, DaybreakError, JobFailed, Permanent, ResultTimeout, Transient
from daybreak.worker.child.failures import failure_of

SECOND = timedelta(seconds=1)
MADE = {
    "UnknownTask": ("send_mial", ["send_mail"]),
    "QueueFull": ("mail", SECOND, "row 3", ["plecs"]),
    "KeyConflict": ("k", "a"),
    "KeySpent": ("k", "a"),
    "UniqueConflict": ("u", "a"),
    "AttemptOver": ("a", 1, "it completed"),
    "WrongState": ("a", "running", "wait"),
    "LockTimeout": ("plecs", "5 s", "ann"),
    "LockShed": ("plecs", "pushed out by b"),
    "LockCycle": ("a waits for b",),
    "SpoolFull": ("jobs.spool", "it holds 1,000 MB"),
    "TooLate": ("connection", "db", 0.5, 1.0),
    "JobNotFound": ("a",),
    "RunNotFound": ("overnigth", ["overnight"]),
    "RunChanged": ("overnight", ["vin: added 24"]),
    "RunBusy": ("overnight", 1, 2),
    "RunTimeout": ("overnight", 3, SECOND),
    "JobFailed": ("a", "add", "error", "ValueError: no", 2, "Traceback ..."),
    "JobCancelled": ("a", "add"),
    "ResultTimeout": ("a", "running", SECOND),
    "CalledDuringImport": ("submit", "tasks.py:3"),
    "SagaFailed": ("s", "execute", "compensated", "create_pod failed"),
    "SagaTimeout": ("s", "forward", SECOND),
    "LeaseLost": ("a", 7),
    "RecordChanged": ("queue", "mail"),
    "CursorExpired": ("0-1",),
}
KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, DaybreakError)]


def pickled(error: DaybreakError, protocol: int | None = None) -> DaybreakError:
    return pickle.loads(pickle.dumps(error, protocol))  # noqa: S301


COPIES = {
    "pickled": pickled,
    "pickled as of old": lambda error: pickled(error, 0),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}


class OutOfPaper(Transient, OSError):
    """An error of a user's own, with attributes of its own."""

    def __init__(self, printer: str) -> None:
        super().__init__(28, f"no paper in {printer}", retry_after="1m")
        self.printer = printer


@pytest.mark.parametrize("sent", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_reaches_another_process_as_it_is(kind, sent):
    error = kind(*MADE.get(kind.__name__, ("it is so",)))
    error.add_note("seen by ann")
    came = sent(error)
    assert type(came) is kind
    assert (str(came), came.args, vars(came)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("sent", COPIES.values(), ids=COPIES)
def test_so_does_one_that_users_derive(sent):
    came = sent(OutOfPaper("north"))
    assert (came.printer, came.retry_after, came.errno) == ("north", "1m", OutOfPaper("north").errno)
    assert (str(came), came.args) == (str(OutOfPaper("north")), OutOfPaper("north").args)


class Garbled(Permanent, UnicodeDecodeError):
    """Of a kind that Python keeps otherwise than by its arguments."""


@pytest.mark.parametrize("sent", COPIES.values(), ids=COPIES)
def test_what_python_itself_keeps_comes_along(sent):
    error = Garbled("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert (str(sent(error)), sent(error).reason) == (str(error), "invalid start byte")


def test_what_came_can_be_told_by_its_class_and_its_attributes():
    with pytest.raises(JobFailed, match="failed") as caught:
        raise pickled(JobFailed("a", "add", "lost", "", 3))
    assert (caught.value.reason, caught.value.attempt) == ("lost", 3)
    assert isinstance(pickled(ResultTimeout("a", "queued", SECOND)), TimeoutError)


@pytest.mark.parametrize("said", ["90s", timedelta(seconds=90), -SECOND, None])
def test_when_to_come_back_is_a_timedelta_or_text(said):
    assert failure_of(Transient("busy", retry_after=said)).message == "busy"


@pytest.mark.parametrize("said", [3, 0.5, True, [1]])
def test_any_other_is_refused_and_the_task_s_own_words_are_told_with_it(said):
    with pytest.raises(BadInput, match=r"^Transient\('the printer is busy'\), retry_after: .* write '90s'"):
        Transient("the printer is busy", retry_after=said)


@pytest.mark.parametrize("said", ["3", "soon", ""])
def test_text_that_is_no_duration_fails_likewise(said):
    failure = failure_of(Transient("the printer is busy", retry_after=said))
    assert (failure.kind, failure.verdict) == ("BadInput", None)
    assert failure.message.startswith("Transient('the printer is busy'), retry_after: ")
    assert "write '90s'" in failure.message
