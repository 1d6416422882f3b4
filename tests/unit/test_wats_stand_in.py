"""The stand-in for WATS: it keeps one report for each id, is strict about reports, and breaks as it is told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

import pytest

from daybreak.adapters.wats import AnswerLost, Wats, WatsBusy, WatsUnavailable
from daybreak.adapters.wats.stand_in import TOKEN, Archive, Faults, StandIn
from daybreak.adapters.wats.stand_in.wsjf import fault_of

SECONDS = 60  # for anything that should take much less


def a_report(**changes):
    return {
        "type": "T", "id": str(uuid.uuid4()), "pn": "PART-001", "sn": "SN-001", "rev": "A", "processCode": 10,
        "result": "P", "machineName": "Station1", "location": "Lab", "purpose": "Production",
        "start": "2026-01-01T10:00:00+01:00", "uut": {"user": "op", "execTime": 5.0},
        "root": {"id": 1, "group": "M", "stepType": "SequenceCall", "name": "Main", "status": "P", "steps": []},
        **changes,
    }  # fmt: skip


def ask(url, content=None):
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, data)  # noqa: S310
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        return json.loads(answer.read())


def test_a_minimal_report_is_accepted_and_each_missing_field_is_named():
    assert fault_of(a_report()) == ""
    assert fault_of(a_report(type="R", uur={}, subUnits=[])) == ""
    for name in ("type", "id", "pn", "sn", "rev", "processCode", "result", "machineName", "start", "uut", "root"):
        report = a_report()
        del report[name]
        assert fault_of(report).startswith(name), name
    assert "101 characters" in fault_of(a_report(pn="x" * 101))
    assert fault_of(a_report(processCode="10")).startswith("processCode")
    assert fault_of([]) != ""


def test_faults_follow_one_another_and_then_the_server_works():
    faults = Faults(errors=1, busy=2, lose=1, drop=1, down_at=6)
    assert [faults.next() for _ in range(8)] == ["errors", "busy", "busy", "lose", "drop", "down", None, None]
    assert faults.injected == {"errors": 1, "busy": 2, "lose": 1, "drop": 1, "down": 1}


def test_faults_at_random_are_the_same_for_one_seed():
    one, same, other = Faults(fail_share=0.5, seed=1), Faults(fail_share=0.5, seed=1), Faults(fail_share=0.5, seed=2)
    drawn = [one.next() for _ in range(200)]
    assert drawn == [same.next() for _ in range(200)]
    assert drawn != [other.next() for _ in range(200)]
    assert 60 < sum(fault is not None for fault in drawn) < 140


def test_what_is_stored_and_what_is_not():
    reports = [a_report() for _ in range(4)]
    with StandIn(Faults(errors=1, busy=1, lose=1, drop=1)) as stand_in, Wats(stand_in.url, TOKEN) as client:
        for report, error in zip(reports, (WatsBusy, WatsBusy, None, AnswerLost), strict=True):
            if error is None:
                client.submit(report)  # its answer was lost, and the server was asked
            else:
                with pytest.raises(error):
                    client.submit(report)
        assert stand_in.archive.order == [reports[2]["id"]]
        assert stand_in.counts()["faults"] == {"errors": 1, "busy": 1, "lose": 1, "drop": 1}


def test_a_submission_before_its_retry_after_is_counted():
    report = a_report()
    with StandIn(Faults(busy=1, retry_after=1000)) as stand_in, Wats(stand_in.url, TOKEN) as client:
        with pytest.raises(WatsBusy):
            client.submit(report)
        client.submit(a_report())  # of another report: nobody was told to wait with it
        assert stand_in.counts()["too_early"] == 0
        client.submit(report)
        assert stand_in.counts()["too_early"] == 1


def test_a_server_that_is_down_refuses_connections_and_comes_back_with_its_reports():
    report = a_report()
    with StandIn() as stand_in, Wats(stand_in.url, TOKEN) as client:
        client.submit(report)
        stand_in.go_down(seconds=1000)
        deadline = time.monotonic() + SECONDS
        while client.is_available():
            assert time.monotonic() < deadline
        with pytest.raises(WatsUnavailable):
            client.submit(a_report())
        stand_in.come_back()
        while not client.is_available():
            assert time.monotonic() < deadline
        assert client.fetch(report["id"]) == report
        assert stand_in.outages == 1


def test_a_server_that_is_down_can_be_closed():
    for _ in range(5):
        with StandIn() as stand_in:
            stand_in.go_down(seconds=1000)


def test_a_folder_keeps_the_reports_over_a_restart(tmp_path):
    report = a_report()
    with StandIn(archive=Archive(tmp_path)) as stand_in:
        Wats(stand_in.url, TOKEN).submit(report)
    with StandIn(archive=Archive(tmp_path)) as stand_in:
        assert Wats(stand_in.url, TOKEN).fetch(report["id"]) == report
        assert stand_in.counts()["reports"] == 1


def test_it_is_controlled_while_it_runs():
    with StandIn() as stand_in:
        control = f"{stand_in.url}/stand-in"
        assert ask(f"{control}/faults", {"errors": 2})["submissions"] == 0
        with pytest.raises(WatsBusy):
            Wats(stand_in.url, TOKEN).submit(a_report())
        assert ask(control)["faults"] == {"errors": 1}
        for path, content in (("faults", {"eror": 1}), ("faults", []), ("down", {"seconds": "x"}), ("other", {})):
            with pytest.raises(urllib.error.HTTPError, match="40"):
                ask(f"{control}/{path}", content)
        assert ask(f"{control}/down", {"seconds": 0})["outages"] == 1


def test_it_runs_as_a_command(tmp_path):
    command = [sys.executable, "-m", "daybreak.adapters.wats.stand_in", "--port", "0", "--errors", "1", "--token", "t"]
    with subprocess.Popen([*command, "--folder", tmp_path], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert "not WATS" in line
            client = Wats(line.split()[0], "t")
            with pytest.raises(WatsBusy):
                client.submit(a_report())
            assert client.submit(a_report()).id
            assert len(list(tmp_path.glob("*.json"))) == 1
        finally:
            process.kill()


def test_a_port_that_is_taken_is_said():
    with StandIn() as stand_in:
        command = [sys.executable, "-m", "daybreak.adapters.wats.stand_in", "--port", str(stand_in.port)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 1
    assert "cannot be used" in ran.stderr
