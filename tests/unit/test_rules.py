"""Admission rules: what they see, what they may set, and what is said when they are wrong."""

from __future__ import annotations

import pytest

from daybreak.core.errors import BadInput, NotAllowed, Refused
from daybreak.tasks.admission_rules import Admission, apply_rules, check_rule

ASKED = Admission(task="apply", args={"branch": "main"}, by="ann", queue="default", priority=5)


def test_rules_follow_one_another():
    def first(job):
        return {"priority": "high"}

    def second(job):
        return {"queue": f"p{job.priority}", "tags": ["seen"]}

    found = apply_rules([first, second], ASKED)
    assert (found.priority, found.queue, found.tags) == (2, "p2", ("seen",))


def test_a_rule_that_says_nothing_changes_nothing():
    assert apply_rules([lambda job: None, lambda job: {}], ASKED) is ASKED


def test_a_rule_may_refuse():
    def only_on_call(job):
        raise NotAllowed("emergency is for people on call")

    with pytest.raises(NotAllowed, match="on call"):
        apply_rules([only_on_call], ASKED)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"colour": "red"}, "rule 'rule' cannot set 'colour': it can set priority, queue"),
        ({"priority": "soon"}, "soon"), (7, "rule 'rule' returned 7: return a dict"),
        ({"queue": "a\x1bb"}, "control"), ({"tags": "urgent"}, "list of strings"), ({"tags": None}, "list of strings"),
        ({"meta": "x"}, "dict with strings as keys"), ({"meta": {1: "a"}}, "dict with strings as keys"),
        ({"owner": 7}, "owner"),
    ],
)  # fmt: skip
def test_what_a_rule_cannot_set_is_refused(answer, said):
    def rule(job):
        return answer

    with pytest.raises(BadInput, match=said):
        apply_rules([rule], ASKED)


def test_a_rule_that_breaks_refuses_the_job_and_names_itself():
    def by_title(job):
        return {"priority": job.args["title"]}

    with pytest.raises(
        Refused,
        match=r"rule 'by_title' raised an error for a job of task 'apply'.*: KeyError: 'title'",
    ):
        apply_rules([by_title], ASKED)


async def _waits(job):
    return None


@pytest.mark.parametrize(("rule", "said"), [("text", "not a rule"), (_waits, "must not wait")])
def test_what_is_no_rule_is_refused_where_it_is_declared(rule, said):
    with pytest.raises(BadInput, match=said):
        check_rule(rule)
