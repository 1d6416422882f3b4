"""The stand-in for PLECS: its circuit is right, its protocol strict, and it breaks as it is told."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
import xmlrpc.client
from contextlib import contextmanager

import pytest

from daybreak.adapters.plecs import ModelError, Plecs, PlecsUnavailable
from daybreak.adapters.plecs.stand_in import Faults, StandIn
from daybreak.adapters.plecs.stand_in.buck import Circuit, ModelFault, read_model, simulate

SETTLED = {"SolverOpts": {"TimeSpan": 5e-3}}


def run_to_the_end(**variables):
    return simulate({}, {"ModelVars": variables, **SETTLED})


def test_the_converter_settles_where_theory_says():
    for duty, load in ((0.3, 0.5), (0.5, 1.0), (0.8, 0.7)):
        found = run_to_the_end(duty=duty, R=load)
        last = found["Values"][0][-10:]  # one period
        assert sum(last) / 10 == pytest.approx(24 * duty * load / (load + 0.02), rel=2e-3)


def test_the_ripple_of_the_current_is_that_of_the_coil():
    found = run_to_the_end(duty=0.5)
    last = found["Values"][1][-11:]
    assert max(last) - min(last) == pytest.approx(24 * 0.5 * 0.5 / (10e-6 * 100e3), rel=1e-2)


def test_between_switching_instants_the_solution_is_exact():
    """Twice as many periods of half the length with the same mean give another ripple, but the same step of an RL
    circuit is e^(-t R/L) whatever the points."""
    circuit = {"Lo": 1e-3, "RL": 1.0, "Co": 1e3, "duty": 0.999999, "fs": 1e3, "Vi": 10.0}
    found = simulate({}, {"ModelVars": circuit, "SolverOpts": {"TimeSpan": 1e-3}})
    for instant, current in zip(found["Time"], found["Values"][1], strict=True):
        assert current == pytest.approx(10 * (1 - math.exp(-instant / 1e-3)), rel=1e-4, abs=1e-6)


def test_output_times_choose_the_points():
    whole = run_to_the_end()
    few = simulate({}, {"SolverOpts": {"TimeSpan": 5e-3, "OutputTimes": [0, whole["Time"][77], 1.0]}})
    assert few["Time"] == [0, whole["Time"][77], 1.0]
    assert few["Values"][0] == pytest.approx([0.0, whole["Values"][0][77], whole["Values"][0][-1]])


@pytest.mark.parametrize(
    ("variables", "text"),
    [({"Lo": 0}, "buck/Lo"), ({"R": -1}, "buck/R"), ({"duty": 1}, "duty cycle"), ({"Vi": "x"}, "buck/Vi")],
)
def test_a_model_error_names_the_component(variables, text):
    with pytest.raises(ModelFault, match=text):
        simulate({}, {"ModelVars": variables})


def test_the_limits_of_a_run_hold():
    with pytest.raises(ModelFault, match="timed out"):
        simulate({}, {"SolverOpts": {"Timeout": 0.01}}, slow=30)
    with pytest.raises(ModelFault, match="periods"):
        simulate({}, {"SolverOpts": {"TimeSpan": 1e9}})


def test_a_model_file_sets_variables_as_initialisation_commands():
    text = 'Plecs {\n  Name "buck"\n  InitializationCommands "Vi = 24;\nLo = 10e-6; % coil\nVo_ref = 6;"\n}'
    assert read_model(text.replace('"Vi', '"\nVi')) == {"Vi": 24.0, "Lo": 10e-6, "Vo_ref": 6.0}
    assert set(Circuit._fields) >= {"Vi", "Lo"}


# -- the protocol ------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "buck.plecs"
    path.write_text("Vi = 24;\nTimeSpan = 1e-4;\n", encoding="utf-8")
    return path


def test_the_standard_client_understands_it(model):
    with StandIn() as stand_in, xmlrpc.client.ServerProxy(stand_in.address) as proxy:
        assert "plecs.simulate" in proxy.system.listMethods()
        with pytest.raises(xmlrpc.client.Fault, match="not loaded"):
            proxy.plecs.simulate("buck")
        proxy.plecs.load(str(model))
        proxy.plecs.load(str(model.with_suffix("")).replace("/buck", "//buck"))  # as PyPLECS writes it
        assert list(proxy.plecs.simulate("buck")) == ["Time", "Values"]
        for wrong in ("plecs.analyze", "plecs.webserver"):
            with pytest.raises(xmlrpc.client.Fault, match="no method"):
                getattr(proxy, wrong)("buck")
        with pytest.raises(xmlrpc.client.Fault):
            proxy.plecs.load()


def test_it_listens_on_this_machine_alone():
    with StandIn() as stand_in:
        assert stand_in._server.server_address[0] == "127.0.0.1"
        assert stand_in.address.startswith("http://127.0.0.1:")


def test_faults_by_number_happen_once_and_at_that_call():
    assert [Faults(die_after=2).next() for _ in range(1)] == [None]
    faults = Faults(hang_at=2, wrong_at=4, busy=1)
    assert [faults.next() for _ in range(5)] == ["busy", "hang", None, "wrong", None]
    dying = Faults(die_after=2)
    assert [dying.next() for _ in range(4)] == [None, None, "die", "die"]


def test_a_share_fails_at_random_but_the_same_for_a_seed():
    faults, same, other = Faults(fail_share=0.052, seed=1), Faults(fail_share=0.052, seed=1), Faults(fail_share=0.052)
    drawn = [faults.next() for _ in range(10_000)]
    assert drawn == [same.next() for _ in range(10_000)]
    assert drawn != [other.next() for _ in range(10_000)]
    assert 400 < faults.injected < 640
    assert set(drawn) == {None, "busy", "drop", "unavailable"}


def test_a_batch_runs_on_several_cores_at_once(model):
    """Judged by overlap, not by speed: two simulations of a batch are in two processes."""
    with StandIn(Faults(slow=0.3), cores=2) as stand_in:
        client = Plecs(stand_in.address, timeout="1m")
        client.load(model)
        found = client.simulate_batch("buck", [{"Vi": 10}, {"Lo": 0}, {"Vi": 20}, {"Vi": 30}])
        assert (stand_in.batches, stand_in.simulations) == (1, 4)
        assert len(stand_in._pool._processes) == 2
    assert isinstance(found[1], ModelError)
    volts = [found[number].final[0] for number in (0, 2, 3)]
    assert volts == pytest.approx([volts[0], 2 * volts[0], 3 * volts[0]])


# -- as a command ------------------------------------------------------------------------------------------------------


@contextmanager
def started(*options):
    command = [sys.executable, "-m", "daybreak.adapters.plecs.stand_in", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert "not PLECS" in line
            yield process, line.split()[0]
        finally:
            process.kill()


def test_the_command_says_what_it_is_and_dies_as_told(model):
    with started("--die-after", "2") as (process, address):
        client = Plecs(address, timeout="20s")
        client.load(model)
        client.simulate("buck")
        client.simulate("buck")
        with pytest.raises(PlecsUnavailable):
            client.simulate("buck")
        assert process.wait(20) == 1


def test_its_processes_end_when_it_is_killed(model):
    with started("--cores", "2", "--slow", "0.1") as (process, address):
        client = Plecs(address, timeout="1m")
        client.load(model)
        client.simulate_batch("buck", [{}, {}])
        children = [int(pid) for pid in _children(process.pid)]
        assert len(children) >= 2
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    deadline = time.monotonic() + 20
    while any(_is_alive(pid) for pid in children):
        assert time.monotonic() < deadline, "a process of the stand-in outlived it"
        time.sleep(0.02)


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123
        direct = file.read().split()
    threads = [t for t in os.listdir(f"/proc/{pid}/task") if t != str(pid)]  # noqa: PTH208
    for thread in threads:
        with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:  # noqa: PTH123
            direct += file.read().split()
    return direct


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_taken_port_is_named():
    with StandIn() as stand_in:
        command = [sys.executable, "-m", "daybreak.adapters.plecs.stand_in", "--port", str(stand_in.port)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"port {stand_in.port} cannot be used")


def test_closing_ends_calls_that_hang(model):
    ended = threading.Event()
    with StandIn(Faults(hang_at=1)) as stand_in:
        client = Plecs(stand_in.address, timeout="30s")
        client.load(model)

        def wait():
            with pytest.raises(PlecsUnavailable):
                client.simulate("buck")
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        deadline = time.monotonic() + 20
        while not stand_in.faults.calls:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert ended.wait(20)
