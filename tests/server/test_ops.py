"""The files in ops/: they use metrics that exist, and the thresholds of the code; and the tools of each format accept
them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from daybreak.api.metrics.families import Families
from daybreak.api.metrics.figures import Figures
from daybreak.core.units import duration
from daybreak.policy.alerts import BY_NAME, LEVELS, MIN_OPERATIONS, RULES, AlertState
from daybreak.worker.settings import WorkerSettings

OPS = Path(__file__).parents[2] / "ops"
DASHBOARD = json.loads((OPS / "grafana" / "daybreak.json").read_text())
RULE_FILE = OPS / "prometheus" / "daybreak.rules.yml"
RULE_LIST = [rule for group in yaml.safe_load(RULE_FILE.read_text())["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULE_LIST if "alert" in rule and "rule" in rule["labels"]]
UNITS = sorted((OPS / "systemd").glob("*.service"))
NOTHING = Figures(
    now=datetime(2026, 3, 1, tzinfo=UTC), tallies=[], totals=[], oldest={}, resources=[], locks=[], workers=[],
    alerts=AlertState(), sketches={},
)  # fmt: skip


def emitted() -> dict[str, set[str]]:
    """The names of all samples that a scrape can have, each with its labels."""
    found: dict[str, set[str]] = {}
    for family in Families(NOTHING).all():
        labels = set(family._labelnames) | {"job", "instance"}
        for suffix in suffixes(family):
            found[family.name + suffix] = labels | {"le"} if suffix == "_bucket" else labels
    return found


def suffixes(family: Metric) -> tuple[str, ...]:
    return {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}[family.type]


def names_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression reads. A recorded name has colons."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    return set(re.findall(r"\bdaybreak[_:][a-z0-9_:]+|\bup\b", bare))


def labels_in(expression: str) -> set[str]:
    """The labels that an expression selects by or groups by."""
    found = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    for names in re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", expression):
        found.update(name.strip() for name in names.split(","))
    return found


PANELS = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}".replace(" ", "-"))
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]


@pytest.mark.parametrize("expression", PANELS)
def test_a_panel_reads_metrics_and_labels_that_exist(expression):
    samples = emitted()
    names = names_in(expression)
    assert names
    assert names <= samples.keys()
    assert labels_in(expression) <= set().union(*(samples[name] for name in names))


def test_a_rule_reads_metrics_and_labels_that_exist():
    samples = emitted()
    recorded = {rule["record"] for rule in RULE_LIST if "record" in rule}
    known = set().union(*samples.values())
    for rule in RULE_LIST:
        names = names_in(rule["expr"])
        assert names
        assert names <= samples.keys() | recorded | {"up"}, rule
        assert labels_in(rule["expr"]) <= known, rule


def test_every_metric_is_on_the_dashboard():
    shown = set().union(*(names_in(param.values[0]) for param in PANELS))
    for family in Families(NOTHING).all():
        assert shown & {family.name + suffix for suffix in suffixes(family)}, family.name


def test_the_dashboard_has_the_four_queries_of_atlantis():
    by_title = {panel["title"]: names_in(panel["targets"][0]["expr"]) for panel in DASHBOARD["panels"]}
    assert by_title["Depth by priority"] == {"daybreak_jobs"}
    assert by_title["Average wait by priority"] == {"daybreak_wait_seconds_sum", "daybreak_wait_seconds_count"}
    assert by_title["Timeout rate"] == {"daybreak_timeouts_total", "daybreak_attempts_total"}
    assert by_title["Retry success rate"] == {"daybreak_retries_completed_total", "daybreak_retries_total"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_rules_have_the_thresholds_of_the_code():
    found = {}
    for alert in ALERTS:
        compared = re.findall(r"(?:>=|==) ([0-9.]+)", alert["expr"])
        key = (alert["labels"]["rule"], alert["labels"]["severity"])
        assert key not in found, "two rules for one alert"
        found[key] = compared
    expected = {}
    for rule in RULES:
        for level in ("warning", "critical"):
            threshold = getattr(rule.threshold, level)
            if threshold is not None:
                expected[rule.name, level] = threshold
    assert found.keys() == expected.keys()
    for (name, level), compared in found.items():
        if name == "lock_held":  # the level of Daybreak's own alert stands for its threshold
            assert [int(one) for one in compared] == [LEVELS.index(level)]
        elif name == "no_worker":
            assert [float(one) for one in compared] == [expected[name, level], LEVELS.index("critical")]
        elif BY_NAME[name].unit == "share":
            assert [float(one) for one in compared] == [MIN_OPERATIONS, expected[name, level]]
        else:
            assert [float(one) for one in compared] == [expected[name, level]]


def test_the_example_of_prometheus_names_the_rules_and_the_job():
    config = yaml.safe_load((OPS / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == [RULE_FILE.name]
    assert config["scrape_configs"][0]["job_name"].startswith("daybreak")


def _promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        reason = "promtool is not installed (Debian package prometheus): the PromQL of ops/ was not parsed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.mark.parametrize("arguments", [("check", "rules", RULE_FILE.name), ("check", "config", "prometheus.yml")])
def test_promtool_accepts_the_files(arguments):
    promtool = _promtool()
    done = subprocess.run(
        [promtool, *arguments], cwd=RULE_FILE.parent, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path):
    promtool = _promtool()
    rules = [{"record": f"panel:{n}", "expr": param.values[0]} for n, param in enumerate(PANELS)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit, tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: the units of ops/ were not verified")
    # The program of the unit is not installed here, so another one that exists takes its place.
    copy = tmp_path / unit.name.replace("@.", "@1.")
    copy.write_text(unit.read_text().replace("/opt/daybreak/bin/daybreak", sys.executable))
    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    about_it = [line for line in done.stderr.splitlines() if copy.name in line or str(copy) in line]
    assert not about_it, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_hardened_and_leaves_time_to_stop(unit):
    parser = configparser.RawConfigParser(strict=False)  # a unit may repeat a key
    parser.optionxform = str
    parser.read(unit)
    service = parser["Service"]
    assert service["User"] == "daybreak"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["Restart"] == "on-failure"
    grace = WorkerSettings().grace + WorkerSettings().cancel_grace
    assert int(service["TimeoutStopSec"]) > grace.total_seconds()


def test_containers_leave_a_worker_time_to_stop():
    compose = yaml.safe_load((OPS / "docker" / "compose.yaml").read_text())
    grace = WorkerSettings().grace + WorkerSettings().cancel_grace
    assert duration(compose["services"]["worker"]["stop_grace_period"]) > grace
    assert compose["services"]["serve"]["ports"] == ["127.0.0.1:8765:8765"]
    assert (OPS / "docker" / "Dockerfile").read_text().count("\nFROM python:3.12-slim\n") == 1
