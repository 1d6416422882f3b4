"""What people write of resources."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak import BadInput, Breaker, Resource
from daybreak.core.model import Need
from daybreak.policy.resources import needs_of, parse_rate, parse_shares, rate_text


@pytest.mark.parametrize(
    ("rate", "every"),
    [("10/s", 0.1), ("100/min", 0.6), ("1/h", 3600), ("0.5/s", 2), ("6 / 2s", 1 / 3), ("1000/ms", 1e-6)],
)  # fmt: skip
def test_a_rate_is_a_number_and_a_time(rate, every):
    found = parse_rate(rate, "api")
    assert found is not None
    assert abs(found.total_seconds() - every) < 1e-6


@pytest.mark.parametrize("rate", ["fast", "10", "10/fortnight", "0/s", "-1/s", "10/0s", 10, "1e9/ms", "", "10/s/s"])
def test_a_wrong_rate_is_named(rate):
    with pytest.raises(BadInput, match=r"api.*rate"):
        Resource("api", rate=rate)


@given(st.integers(1, 10_000), st.sampled_from(["s", "min", "h", "d"]))
def test_a_rate_is_told_as_it_was_written(number, unit):
    told = rate_text(parse_rate(f"{number}/{unit}", "api"))
    assert parse_rate(told, "api") == pytest.approx(
        parse_rate(f"{number}/{unit}", "api"), abs=timedelta(microseconds=2)
    )


def test_what_a_job_needs_stands_by_name_and_once():
    plecs, api = Resource("plecs", slots=4), Resource("api", rate="1/s")
    assert needs_of(parse_shares([plecs.take(2), api, "x"])) == (Need("api"), Need("plecs", 2), Need("x"))
    assert needs_of(parse_shares(None)) == ()
    with pytest.raises(BadInput, match="twice"):
        needs_of(parse_shares([plecs, "plecs"]))
    with pytest.raises(BadInput, match="the limit is"):
        needs_of(parse_shares([f"r{n}" for n in range(40)]))


@pytest.mark.parametrize("resource", [7, 2.5, {"plecs": 1}, b"plecs", object()])
def test_what_is_no_resource_is_refused(resource):
    with pytest.raises(BadInput, match="resource="):
        parse_shares(resource)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"slots": -1}, "slots"),
        ({"slots": True}, "slots"),
        ({"slots": 1.5}, "slots"),
        ({"slots": "two"}, "slots"),
        ({"burst": 0, "rate": "1/s"}, "burst"),
        ({"burst": 3}, "without a rate"),
        ({"max_waiting": -1}, "max_waiting"),
        ({"breaker": "yes"}, "breaker"),
        ({"breaker": Breaker(failures=0)}, "breaker"),
        ({"breaker": Breaker(open_for=5)}, "open_for"),
        ({"breaker": Breaker(probes="many")}, "breaker"),
        ({"breaker": Breaker(forget_after=60)}, "forget_after"),
        ({"breaker": Breaker(forget_after="0s")}, "forget_after"),
    ],
)
def test_settings_that_cannot_be_right_are_named(said, named):
    with pytest.raises(BadInput, match=named):
        Resource("plecs", **said)


@pytest.mark.parametrize("name", ["", None, 7, "a\x1bb", "x" * 300])
def test_a_resource_has_a_printable_name(name):
    with pytest.raises(BadInput):
        Resource(name)


def test_no_slots_of_something_are_refused():
    for slots in (0, -1, True, "2", 1.5):
        with pytest.raises(BadInput, match="slots"):
            Resource("plecs").take(slots)
