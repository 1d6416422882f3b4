"""`daybreak resources`."""

from __future__ import annotations

import pytest

from daybreak.api.resources import provide
from daybreak.core.model import Breaker, Need
from daybreak.policy.resources import Resource


def declare(place, *resources: Resource) -> None:
    place.do(lambda client: provide(client, resources))


def test_resources_are_listed_with_what_is_in_use(cli, place, ask):
    declare(place, Resource("api", rate="10/s", burst=3), Resource("plecs", slots=2), Resource("lock:x", slots=1))
    lines = [line.split() for line in cli("resources").stdout.splitlines()]
    assert lines[1] == ["api", "0", "0", "10/s,", "burst", "3"]
    assert lines[2] == ["plecs", "0/2", "0"]
    assert lines[-1][:2] == ["2", "resources."]
    assert [one["name"] for one in ask("resources", "--locks", "--json")["resources"]] == ["api", "lock:x", "plecs"]


def test_none_is_no_error(cli, place):
    place.do(lambda client: client.tallies())
    assert cli("resources").stdout.startswith("No resources yet")


def test_a_change_holds_until_it_is_reset(cli, place, ask):
    declare(place, Resource("plecs", slots=2, breaker=Breaker(failures=9)))
    assert cli("resources", "set", "plecs", "slots=4", "rate=100/min").stdout == "plecs: slots 4, rate 100/min.\n"
    told = ask("resources", "show", "plecs", "--json")
    assert (told["slots"], told["rate"], told["differs"], told["breaker"]) == (4, "100/min", True, "closed")
    assert "differs from the code" in cli("resources").stdout
    assert "daybreak resources reset plecs" in cli("resources", "show", "plecs").stdout
    assert cli("resources", "reset", "plecs").stdout == "plecs has the settings of the code again: 2 slots.\n"
    assert not ask("resources", "show", "plecs", "--json")["differs"]


def test_limits_are_taken_away_with_none(cli, place, ask):
    cli("resources", "set", "api", "slots=1", "rate=1/s", "max_waiting=5")
    cli("resources", "set", "api", "slots=none", "rate=none", "max_waiting=none")
    told = ask("resources", "show", "api", "--json")
    assert (told["slots"], told["rate"], told["max_waiting"]) == (None, "none", None)


def test_a_breaker_is_set_word_by_word(cli, place, ask):
    cli("resources", "set", "api", "breaker=on", "failures=7")
    cli("resources", "set", "api", "open_for=5s")
    [record] = place.do(lambda client: client.store.records("resource", "api"))
    assert b'"failures":7' in record.value
    assert b'"open_for":"PT5S"' in record.value
    cli("resources", "set", "api", "breaker=off")
    assert ask("resources", "show", "api", "--json")["breaker"] == "none"


def test_burst_and_breaker_settings_are_shown(cli, place, ask):
    cli("resources", "set", "api", "rate=10/s", "burst=5", "breaker=on", "failures=1", "open_for=90s", "probes=3")
    shown = " ".join(cli("resources", "show", "api").stdout.split())
    assert "rate 10/s burst 5 starts at once after an idle time" in shown
    assert "breaker closed opens after 1 failure in a row; stays open for 1 min 30 s" in shown
    assert "closes after 2 successes, probing with 3 jobs at a time" in shown
    told = ask("resources", "show", "api", "--json")
    assert (told["burst"], told["breaker"]) == (5, "closed")
    settings = {"failures": 1, "successes": 2, "open_for": 90.0, "probes": 3, "forget_after": None}
    assert told["breaker_settings"] == settings
    cli("resources", "set", "api", "failures=2", "forget_after=5m")
    shown = " ".join(cli("resources", "show", "api").stdout.split())
    assert "opens after 2 failures in a row, each within 5 min of the last; stays open for 1 min 30 s" in shown
    assert ask("resources", "show", "api", "--json")["breaker_settings"]["forget_after"] == 300.0
    cli("resources", "set", "api", "forget_after=none")
    assert ask("resources", "show", "api", "--json")["breaker_settings"]["forget_after"] is None
    cli("resources", "set", "api", "rate=none", "breaker=off")
    told = ask("resources", "show", "api", "--json")
    assert told["breaker_settings"] is None
    shown = cli("resources", "show", "api").stdout
    assert "opens after" not in shown
    assert "burst" not in shown


def test_who_holds_and_who_waits_is_told(cli, place, ask):
    cli("resources", "set", "plecs", "slots=1")
    place.do(lambda client: client.submit(with_needs(client)))
    place.do(lambda client: client.submit(with_needs(client)))
    place.do(lambda client: client.store.exchange(claim()))
    told = ask("resources", "show", "plecs", "--json")
    assert (told["used"], told["waiting"], len(told["holders"])) == (1, 1, 1)
    assert "held by work" in cli("resources", "show", "plecs").stdout
    blocked = ask("jobs", "--state", "blocked", "--json")["jobs"]
    assert [one["state"] for one in blocked] == ["blocked"]
    assert "plecs" in cli("jobs", "show", blocked[0]["id"]).stdout


def with_needs(client):
    from msgspec.structs import replace

    from daybreak.core.model import Options

    return replace(client.spec("work"), options=Options(resources=(Need("plecs"),)))


def claim():
    from daybreak.store.protocol import Claim, Exchange

    return Exchange(claim=Claim(worker="w", limit=5))


@pytest.mark.parametrize(
    ("words", "named", "code"),
    [
        (("set", "plecs", "slot=1"), "did you mean 'slots'", 2),
        (("set", "plecs", "slots=many"), "whole number", 2),
        (("set", "plecs", "rate=fast"), "10/s", 2),
        (("set", "plecs", "burst=3"), "without a rate", 2),
        (("set", "plecs", "breaker=maybe"), "on or off", 2),
        (("set", "plecs", "slots"), "slots", 2),
        (("set", "plecs", "open_for=5"), "90s", 2),
        (("set", "a\x1b[2Jb", "slots=1"), "control character", 2),
        (("show", "plec"), "did you mean 'plecs'", 4),
        (("reset", "other"), "no resource", 4),
        (("sho", "plecs"), "did you mean 'show'", 2),
    ],
)
def test_what_cannot_be_right_is_named(cli, place, words, named, code):
    declare(place, Resource("plecs", slots=1))
    assert named in cli("resources", *words, code=code).stderr


def test_what_is_submitted_here_shares_as_the_apps_own_code_does(cli, place, ask, tmp_path):
    (tmp_path / "tasks.py").write_text(
        "from daybreak import Daybreak, Resource\n"
        "app = Daybreak('daybreak.db')\n"
        "@app.task(resource=lambda model, **_: Resource(f'licence:{model}', slots=1))\n"
        "def simulate(model: str, n: int = 0) -> int: return n\n"
    )
    job = cli("submit", "simulate", "model=buck", "--app", "tasks.py").stdout.strip()
    [found] = [one for one in ask("jobs", "--json")["jobs"] if one["id"] == job]
    assert found["resources"] == [{"resource": "licence:buck", "slots": 1}]
    assert ask("resources", "show", "licence:buck", "--json")["slots"] == 1
