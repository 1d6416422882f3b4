"""Admission rules: what they see, what they may set, and what is said when they are wrong."""

from __future__ import annotations

import pytest

from daybreak.core.errors import BadInput, NotAllowed, Refused
from daybreak.tasks.admission_rules import Admission, check_rule, judge

ASKED = Admission(task="apply", args={"branch": "main"}, by="ann", queue="default", priority=5)


def test_rules_follow_one_another():
    def first(job):
        return {"priority": "high"}

    def second(job):
        return {"queue": f"p{job.priority}", "tags": ["seen"]}

    found = judge([first, second], ASKED)
    assert (found.priority, found.queue, found.tags) == (2, "p2", ("seen",))


def test_a_rule_that_says_nothing_changes_nothing():
    assert judge([lambda job: None, lambda job: {}], ASKED) is ASKED


def test_a_rule_may_refuse():
    def only_on_call(job):
        raise NotAllowed("emergency is for people on call")

    with pytest.raises(NotAllowed, match="on call"):
        judge([only_on_call], ASKED)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"colour": "red"}, "rule 'rule' sets 'colour': it can set priority, queue"),
        ({"priority": "soon"}, "soon"), (7, "rule 'rule' returned 7: it returns a dict"),
        ({"queue": "a\x1bb"}, "control"), ({"tags": "urgent"}, "list of texts"), ({"tags": None}, "list of texts"),
        ({"meta": "x"}, "dict of texts"), ({"meta": {"a": 1}}, "dict of texts"), ({"owner": 7}, "owner"),
    ],
)  # fmt: skip
def test_what_a_rule_cannot_set_is_refused(answer, said):
    def rule(job):
        return answer

    with pytest.raises(BadInput, match=said):
        judge([rule], ASKED)


def test_a_rule_that_breaks_refuses_the_job_and_names_itself():
    def by_title(job):
        return {"priority": job.args["title"]}

    with pytest.raises(Refused, match="rule 'by_title' could not judge a job of task 'apply': KeyError: 'title'"):
        judge([by_title], ASKED)


async def _waits(job):
    return None


@pytest.mark.parametrize(("rule", "said"), [("text", "no rule"), (_waits, "must not wait")])
def test_what_is_no_rule_is_refused_where_it_is_declared(rule, said):
    with pytest.raises(BadInput, match=said):
        check_rule(rule)
