"""What the benchmarks do about stores and servers: which rows run, what they are held against, what is drawn."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # benchmarks is no installed package

from benchmarks import apart, measure, plot, processes, servers
from benchmarks.__main__ import main
from benchmarks.measure import Measured, Run
from benchmarks.report import as_json, lines, page
from benchmarks.row import Goal, Row, of_figure
from benchmarks.rows import of_stores, rows
from benchmarks.server_rows import PEERS
from benchmarks.stats import Interval

EVERY = rows(quick=True, backlog=1000)
SERVED = ("postgres", "redis")


def measured(name="drain", figures=(100.0,), *, side="ours", facts=None, parts=(), **about):
    row = Row(name=name, side=side, work="", jobs=1, options={}, **about)
    return Measured(row, list(figures), facts=facts or {}, parts=list(parts))


def run_of(*rows, missing=None):
    return Run({one.row.name: one for one in rows}, missing or {})


# -- which rows there are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", SERVED)
@pytest.mark.parametrize(
    "what",
    [
        "submit one thread", "submit 64 threads", "submit 64 tasks", "submit many", "drain, async", "drain, sync",
        "drain, 1 up", "drain, 2 up", "drain, 4 up", "idle", "urgent", "killed worker's job", "idle worker",
    ],
)  # fmt: skip
def test_each_server_has_every_row(store, what):
    assert f"{store} {what}" in {row.name for row in EVERY}


@pytest.mark.parametrize("store", SERVED)
def test_each_peer_is_filled_and_drained(store):
    names = {row.name for row in EVERY}

    for peer in PEERS[store]:
        assert {f"{store} {peer.name} enqueue", f"{store} {peer.name} drain"} <= names
        assert (f"{store} {peer.name} bulk" in names) == bool(peer.bulk)


def test_each_peer_has_a_module():
    apps = Path(measure.__file__).parent / "apps"

    for row in EVERY:
        if row.side == "peer" and row.store in SERVED:
            peer = row.work.rpartition("/")[2]
            assert any((apps / f"{peer}{kind}_app.py").exists() for kind in ("", "_redis", "_postgres")), peer


def test_drains_and_urgent_jobs_have_the_same_settings():
    by_name = {row.name: row for row in EVERY}

    for store in SERVED:
        drain, urgent = by_name[f"{store} drain, async"], by_name[f"{store} urgent"]
        assert drain.work.split()[1] == urgent.work.split()[1]
        assert not drain.options
        assert set(urgent.options) == {"backlog"}


def test_one_store_brings_what_its_rows_are_held_against():
    chosen = of_stores(EVERY, ["sqlite"])

    names = {row.name for row in chosen}
    assert {"sqlite drain, async", "sqlite huey drain", "raw 100", "redis celery drain", "import"} <= names
    assert {row.store for row in chosen if row.side == "ours"} == {"sqlite", ""}
    assert not any(name.startswith("redis bullmq") for name in names)


def test_all_stores_are_all_rows():
    assert of_stores(EVERY, ["sqlite", "postgres", "redis", "memory"]) == EVERY


def test_a_store_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--stores", "sqlite,mongo"])

    assert "no store is called mongo" in capsys.readouterr().err


# -- what they are held against ----------------------------------------------------------------------------------------


def test_a_goal_may_name_its_peer_though_another_is_faster():
    ours = measured(figures=[300.0], goals=(Goal(must=1.5, aim=2.5, peer="bullmq"),), against="drain on redis")
    named = measured("redis bullmq drain", [100.0], side="peer", against="drain on redis")
    faster = measured("redis other drain", [200.0], side="peer", against="drain on redis")

    [line] = lines(run_of(ours, named, faster))

    assert line.peer is named
    assert line.reached == Interval(3.0, 3.0, 3.0)


def test_a_named_peer_that_is_missing_is_not_replaced_by_a_slower_one():
    ours = measured(figures=[300.0], goals=(Goal(must=1.5, aim=2.5, peer="bullmq"),), against="drain on redis")
    slower = measured("redis huey drain", [10.0], side="peer", against="drain on redis")

    [line] = lines(run_of(ours, slower))

    assert line.verdict == "**no peer**"


@pytest.mark.parametrize(("figure", "verdict"), [(99.0, "**misses**"), (100.0, "as aimed")])
def test_more_workers_may_not_drain_less_than_one(figure, verdict):
    one = measured("redis drain, 1 up", [100.0])
    four = measured("redis drain, 4 up", [figure], goals=(Goal(must=1, aim=1, than="redis drain, 1 up"),))

    [line] = lines(run_of(one, four))

    assert line.verdict == verdict


def test_peers_on_different_stores_are_not_mixed():
    ours = measured(figures=[300.0], goals=(Goal(must=1, aim=2),), against="drain on postgres")
    there = measured("postgres pgqueuer drain", [100.0], side="peer", against="drain on postgres")
    elsewhere = measured("redis bullmq drain", [900.0], side="peer", against="drain on redis")

    [line] = lines(run_of(ours, there, elsewhere))

    assert line.peer is there


def test_the_page_names_what_could_not_run_and_the_ratio_to_every_peer():
    ours = measured("redis drain, async", [300.0], store="redis", against="drain on redis")
    theirs = measured(
        "redis huey drain", [100.0], side="peer", store="redis", against="drain on redis", says="huey",
        facts={"version": "huey 3", "store": "appendonly yes"},
    )  # fmt: skip
    run = run_of(ours, theirs, missing={"redis bullmq drain": "bullmq is not prepared"})

    shown = page(run, as_json(run, name="", form="quick", repeat=1, place=Path(), command=""))

    assert "- redis bullmq drain: bullmq is not prepared" in shown
    assert "| huey, drain on redis | 100 /s | 3 x, redis drain, async | appendonly yes | huey 3 |" in shown


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_rows_whose_program_module_or_environment_is_missing_are_named(monkeypatch):
    monkeypatch.setattr(apart, "PLACE", Path("/nowhere"))
    row = Row(name="row", side="peer", work="", jobs=1, options={})

    told = measure.absent([
        replace(row, name="program", needs=("/no-such-program",)),
        replace(row, name="module", needs=("no_such_module",)),
        replace(row, name="environment", apart="bullmq"),
        replace(row, name="fine", needs=("json", "/sh")),
    ])  # fmt: skip

    assert set(told) == {"program", "module", "environment"}
    assert "no-such-program" in told["program"]
    assert "dependency group `bench`" in told["module"]
    assert "python -m benchmarks prepare" in told["environment"]


# -- processes ---------------------------------------------------------------------------------------------------------


def test_a_process_ends_with_its_block_whatever_happens(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        processes.Process([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path) as process,
    ):
        _ = 1 / 0

    with pytest.raises(RuntimeError, match="ended with -15"):
        process.check()


def test_a_process_that_failed_says_its_last_word(tmp_path):
    with processes.Process([sys.executable, "-c", "raise SystemExit('no such queue')"], tmp_path) as process:
        process._process.wait(30)
        with pytest.raises(RuntimeError, match="no such queue"):
            process.check()


def test_a_case_that_hangs_is_asked_to_end():
    case = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.PIPE, text=True)

    processes.end(case)

    assert case.returncode == -15


def test_only_what_clients_send_is_counted_of_redis():
    told = [
        b"+OK\r\n",
        b'+1.2 [0 127.0.0.1:5000] "evalsha" "x"\r\n',
        b'+1.2 [0 lua] "zadd" "y"\r\n',
        b'+1.2 [0 127.0.0.1:5001] "INFO" "commandstats"\r\n',
        b'+1.2 [0 127.0.0.1:5000] "ping"\r\n',
    ]

    assert [servers.is_sent(line) for line in told] == [False, True, False, False, True]


# -- the plot ----------------------------------------------------------------------------------------------------------


def test_the_plot_is_well_formed_and_names_rows_machine_versions_date_and_command():
    slow = measured("sqlite <slow> & late", [5.0], goals=(of_figure(10, 20, "/s"),))
    fine = measured("redis fine", [1.0], parts=[{"p99": 2.0}], goals=(of_figure(25, 10, "ms", True, "p99"),))
    alone = measured("redis alone", [1.0], goals=(Goal(must=2, aim=3),), against="drain")
    run = run_of(slow, fine, alone)
    told = as_json(run, name="", form="quick", repeat=1, place=Path(), command="python -m benchmarks --quick")

    drawn = plot.svg(lines(run), told)

    text = " ".join(" ".join(ET.fromstring(drawn).itertext()).split())  # noqa: S314 - written just above
    for word in ("sqlite <slow> & late", "redis fine: p99", "no peer", told["date"], "python -m benchmarks --quick"):
        assert word in text
    assert told["machine"]["cpu"] in text
    assert f"apsw {told['versions']['apsw']}" in text


def test_what_misses_stands_left_of_the_line():
    assert plot.at(0.5) < plot.at(1) < plot.at(2)
    assert plot.at(2) - plot.at(1) == pytest.approx(plot.at(8) - plot.at(4))
    assert plot.at(1e9) == plot.at(16)
