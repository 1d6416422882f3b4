"""The client of PLECS against the stand-in and against hostile servers: every call ends, every error has a meaning."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import socket
import threading
import time
import xmlrpc.client
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from daybreak import BadInput, Permanent, Resource, Transient
from daybreak.adapters import plecs
from daybreak.adapters.plecs import Plecs, PlecsError, Waveforms, copy_by_content, plecs_cache, plecs_resource
from daybreak.adapters.plecs.errors import error_of
from daybreak.adapters.plecs.options import model_variables
from daybreak.adapters.plecs.results import parse_batch, parse_waveforms
from daybreak.adapters.plecs.stand_in import Faults, StandIn
from daybreak.tasks.cache_key import CacheKeys
from daybreak.tasks.registry import Definition

MODEL = "Vi = 24;\nduty = 0.5;\nLo = 10e-6;\nCo = 100e-6;\nR = 1;\nTimeSpan = 1e-4;\n"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "buck.plecs"
    path.write_text(MODEL, encoding="utf-8")
    return path


@contextmanager
def server(answer):
    """A server that sends these bytes to every connection, or does what a function does with it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    read_request(connection)
                    try:
                        if callable(answer):
                            answer(connection)
                        else:
                            connection.sendall(answer)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/RPC2"


def read_request(connection) -> None:
    """Read a whole request: a socket that is closed with unread bytes resets the connection."""
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if end and (length is None or len(body) >= int(length[1])):
            return
        more = connection.recv(65536)
        if not more:
            return
        data += more


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.0 " + status.encode() + b"\r\nContent-Type: text/xml\r\n\r\n" + body


def rpc(value) -> bytes:
    return http(xmlrpc.client.dumps((value,), methodresponse=True).encode())


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_model_is_loaded_and_simulated(model):
    with StandIn() as stand_in:
        client = Plecs(stand_in.address)
        assert client.is_available()
        assert client.load(model) == "buck"
        found = client.simulate("buck", {"Vi": 48}, solver={"TimeSpan": 2e-3})
        assert isinstance(found, Waveforms)
        assert found.time[-1] == pytest.approx(2e-3)
        assert found.final[0] == pytest.approx(24 / 1.02, rel=0.05)
        assert client.statistics()["models"] == ["buck"]
        assert "not PLECS" in client.statistics()["version"]
        client.set("buck/source", "Vi", "12")
        assert client.get("buck/source", "Vi") == "12.0"
        client.close("buck")
        with pytest.raises(plecs.ModelNotLoaded, match="load the model first"):
            client.simulate("buck")


def test_a_batch_is_one_call_with_a_list_of_option_structs_and_answers_in_order(model):
    asked = []
    with StandIn() as stand_in:
        answer = stand_in.answer
        stand_in.answer = lambda method, params: asked.append((method, params)) or answer(method, params)
        client = Plecs(stand_in.address, timeout="30s")
        client.load(model)
        points = [{"Vi": 12}, {"Vi": 24, "R": 0}, {"Vi": 48}]
        one, two, three = client.simulate_batch("buck", points, solver={"OutputTimes": [1e-4]})
    [(_, (name, structs))] = [call for call in asked if call[0] == "plecs.simulate"]
    assert name == "buck"
    assert [struct["ModelVars"] for struct in structs] == [{"Vi": 12.0}, {"Vi": 24.0, "R": 0.0}, {"Vi": 48.0}]
    assert {struct["SolverOpts"]["Timeout"] for struct in structs} == {30.0}
    assert three.final[0] == pytest.approx(4 * one.final[0])
    assert isinstance(two, plecs.ModelError)
    assert "must be above 0" in str(two)
    assert points[0] == {"Vi": 12}  # the caller's own
    assert client.simulate_batch("buck", []) == []
    with pytest.raises(BadInput, match="give a list"):
        client.simulate_batch("buck", {"Vi": 1})


def test_two_models_of_one_file_name_are_never_confused(tmp_path):
    paths = []
    for number, volts in enumerate((10, 20)):
        (tmp_path / str(number)).mkdir()
        paths.append(tmp_path / str(number) / "my buck.plecs")
        paths[-1].write_text(MODEL.replace("Vi = 24", f"Vi = {volts}"), encoding="utf-8")
    with StandIn() as stand_in:
        client = Plecs(stand_in.address)
        names = [client.load_by_content(path, tmp_path / "copies") for path in paths]
        assert len(set(names)) == 2
        assert all(name.startswith("my_buck_") for name in names)
        low, high = [client.simulate(name).final[0] for name in names]
        assert high == pytest.approx(2 * low)
        copies = {path: path.stat().st_mtime_ns for path in (tmp_path / "copies").iterdir()}
        paths[0].write_text("Vi = 99;", encoding="utf-8")
        assert client.load_by_content(paths[1], tmp_path / "copies") == names[1]
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "copies").iterdir()} == copies
        assert client.load_by_content(paths[0], tmp_path / "copies") not in names


def test_a_copy_that_was_damaged_is_written_anew(model, tmp_path):
    with StandIn() as stand_in:
        client = Plecs(stand_in.address)
        name = client.load_by_content(model, tmp_path / "copies")
        client.close(name)
        (tmp_path / "copies" / f"{name}.plecs").write_text("Vi = 1;", encoding="utf-8")
        client.load_by_content(model, tmp_path / "copies")
        assert client.get(name, "Vi") == "24.0"


def test_a_copy_of_a_copy_is_the_copy(model, tmp_path):
    copy = copy_by_content(model, tmp_path / "copies")
    assert copy_by_content(copy) == copy
    assert copy_by_content(copy, tmp_path / "others").name == copy.name
    with StandIn() as stand_in:
        assert Plecs(stand_in.address).load_by_content(copy) == copy.stem
    copy.write_text("Vi = 1;", encoding="utf-8")  # its name says another content
    assert copy_by_content(copy, tmp_path / "others").name != copy.name


async def test_every_call_has_an_async_twin_with_its_signature(model):
    blocking = [name for name, _ in inspect.getmembers(Plecs, inspect.isfunction) if not name.startswith(("_", "a"))]
    assert "simulate_batch" in blocking
    for name in blocking:
        twin = getattr(Plecs, f"a{name}")
        assert inspect.iscoroutinefunction(twin)
        assert inspect.signature(twin) == inspect.signature(getattr(Plecs, name)), name
    with StandIn(Faults(slow=0.05)) as stand_in:
        client = Plecs(stand_in.address)
        assert await client.ais_available()
        await client.aload(model)
        async with asyncio.timeout(20):
            assert (await client.asimulate("buck")).final


# -- what errors mean --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("PLECS is busy", plecs.PlecsBusy),
        ("Another simulation is running", plecs.PlecsBusy),
        ("A simulation is already in progress.", plecs.PlecsBusy),
        ("Simulation timed out after 10 s", plecs.PlecsTimeout),
        ("Timeout", plecs.PlecsTimeout),
        ("model buck is not loaded", plecs.ModelNotLoaded),
        ("buck/Divide: Division by zero", plecs.ModelError),
        ("buck/Busybox: unknown parameter", plecs.ModelError),
        ("", plecs.ModelError),
    ],
)
def test_the_text_of_plecs_decides_what_an_error_means(text, kind):
    error = error_of(text)
    assert type(error) is kind
    assert isinstance(error, PlecsError)
    assert isinstance(error, Permanent if kind is plecs.ModelError else Transient)


def test_a_second_command_is_refused_as_busy_which_is_transient(model):
    with StandIn(Faults(slow=5)) as stand_in:
        client = Plecs(stand_in.address, timeout="20s")
        client.load(model)
        first = threading.Thread(target=lambda: client.simulate("buck"), daemon=True)
        first.start()
        deadline = time.monotonic() + 20
        while not stand_in.faults.calls:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        with pytest.raises(plecs.PlecsBusy):
            client.simulate("buck")


def test_a_model_error_is_permanent_and_a_damaged_answer_is_not(model):
    with StandIn(Faults(wrong_at=2)) as stand_in:
        client = Plecs(stand_in.address)
        client.load(model)
        with pytest.raises(plecs.ModelError, match="buck/Lo") as caught:
            client.simulate("buck", {"Lo": 0})
        assert isinstance(caught.value, Permanent)
        with pytest.raises(plecs.BadAnswer) as caught:
            client.simulate("buck")
        assert isinstance(caught.value, Transient)
        with pytest.raises(plecs.ModelError, match="cannot load"):
            client.load("/nowhere/none.plecs")


def test_nobody_there_is_transient_and_says_where():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Plecs(f"http://127.0.0.1:{port}")
    assert not client.is_available()
    with pytest.raises(plecs.PlecsUnavailable, match=f"127.0.0.1:{port}") as caught:
        client.simulate("buck")
    assert isinstance(caught.value, Transient)


@pytest.mark.parametrize("fault", [Faults(fail_share=1.0, seed=seed) for seed in range(6)])
def test_injected_failures_are_all_transient(model, fault):
    with StandIn(fault) as stand_in:
        client = Plecs(stand_in.address)
        client.load(model)
        with pytest.raises(Transient):
            client.simulate("buck")
        assert (stand_in.simulations, fault.injected) == (0, 1)


def test_a_server_that_dies_in_the_midst_of_a_call_is_transient(model):
    with StandIn(Faults(die_after=1)) as stand_in:
        client = Plecs(stand_in.address)
        client.load(model)
        client.simulate("buck")
        with pytest.raises(plecs.PlecsUnavailable):
            client.simulate("buck")
        with pytest.raises(plecs.PlecsUnavailable):
            client.simulate("buck")


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_call_without_an_answer_ends_at_its_limit(model):
    with StandIn(Faults(hang_at=1)) as stand_in:
        client = Plecs(stand_in.address, timeout="200ms")
        client.load(model)
        with pytest.raises(plecs.PlecsTimeout, match=r"did not answer plecs.simulate within 0.2 s"):
            client.simulate("buck")
        assert client.simulate("buck", timeout="20s").final  # the lost one blocks nobody


def test_a_server_that_sends_a_byte_now_and_then_does_not_extend_the_limit():
    def dribble(connection):
        for byte in rpc(1):  # complete after some seconds
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    with server(dribble) as address, pytest.raises(plecs.PlecsTimeout):
        Plecs(address, timeout="300ms").statistics()


def test_an_endless_answer_ends_at_the_size_limit():
    def flood(connection):
        connection.sendall(http(b"<?xml version='1.0'?><methodResponse><params><param><value><string>"))
        while True:
            connection.sendall(b"x" * 65536)

    with server(flood) as address, pytest.raises(plecs.AnswerTooLarge, match="OutputTimes"):
        Plecs(address, timeout="20s", max_answer=1_000_000).statistics()


BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    b"<methodResponse><params><param><value><string>&b;</string></value></param></params></methodResponse>"
)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (http(BOMB), plecs.BadAnswer),
        (http(b"<html>hello</html>"), plecs.BadAnswer),
        (http(b""), plecs.BadAnswer),
        (http(b"<methodResponse><params><param><value><int>x</int></value></param></params>"), plecs.BadAnswer),
        (rpc(1)[:-20], plecs.BadAnswer),
        (b"", plecs.PlecsUnavailable),
        (b"SSH-2.0-OpenSSH\r\n", plecs.PlecsUnavailable),
        (http(b"", "503 Service Unavailable"), plecs.PlecsUnavailable),
        (http(b"", "404 Not Found"), plecs.ModelError),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 9999\r\n\r\n<?xml", plecs.PlecsUnavailable),
    ],
    ids=range(10),
)
def test_whatever_answers_the_error_has_a_meaning(answer, kind):
    with server(answer) as address, pytest.raises(kind):
        Plecs(address, timeout="20s").statistics()


def test_a_call_is_sent_once():
    """The standard library sends a call again whose connection was reset: a simulation would run twice."""
    seen = []
    with server(lambda connection: seen.append(1)) as address:
        with pytest.raises(plecs.PlecsUnavailable):
            Plecs(address, timeout="20s").simulate("buck")
        time.sleep(0.05)
    assert seen == [1]


# -- values ------------------------------------------------------------------------------------------------------------


def test_model_variables_are_floats_vectors_matrices_or_text():
    numpy = pytest.importorskip("numpy")
    given = {"a": 1, "b": True, "c": [1, 2.5], "d": [[1, 2], [3, 4]], "e": "on", "f": numpy.float32(2), "g": 2**40}
    given["h"] = numpy.array([1, 2])
    kept = dict(given)
    found = model_variables(given)
    assert found["a"] == 1.0
    assert {type(found[name]) for name in "abfg"} == {float}
    assert (found["c"], found["d"], found["e"], found["h"]) == ([1.0, 2.5], [[1.0, 2.0], [3.0, 4.0]], "on", [1.0, 2.0])
    assert given.keys() == kept.keys()
    assert all(given[name] is kept[name] for name in given)


@pytest.mark.parametrize(
    "wrong", [{"a": float("nan")}, {"a": float("inf")}, {"a": None}, {"a": b"x"}, {"a b": 1}, {1: 1}, {"a": "\0"}, [1]]
)
def test_what_xml_rpc_cannot_carry_is_refused_before_the_call(wrong):
    with pytest.raises(BadInput):
        model_variables(wrong)


@pytest.mark.parametrize(
    ("answer", "signals"),
    [
        ({"Time": [0, 1, 2], "Values": [[1, 2, 3], [4, 5, 6]]}, [[1, 2, 3], [4, 5, 6]]),
        ({"Time": [0, 1, 2], "Values": [[1, 4], [2, 5], [3, 6]]}, [[1, 2, 3], [4, 5, 6]]),
        ({"Time": [0, 1], "Values": [1.5, 2]}, [[1.5, 2]]),
    ],
)
def test_values_are_one_row_per_signal_however_they_came(answer, signals):
    assert parse_waveforms(answer).signals == signals


@pytest.mark.parametrize("empty", [{"Time": [], "Values": []}, {"Time": [0], "Values": []}, "", {}, [], None])
def test_an_empty_answer_is_its_own_error(empty):
    with pytest.raises(plecs.NoOutput, match="outports"):
        parse_waveforms(empty)


@pytest.mark.parametrize(
    "wrong",
    [
        {"Time": [0, 1], "Values": [[1]]},
        {"Time": [0, 1], "Values": [[1, 2], [3]]},
        {"Time": [0, "x"], "Values": [[1, 2]]},
        {"Time": [0, 1], "Values": [[1, True]]},
        {"Time": 3, "Values": [[1]]},
        {"Time": [0], "Values": 1},
        17,
        [{"Time": [0], "Values": [[1]]}],
    ],
)
def test_an_answer_of_another_shape_is_refused(wrong):
    with pytest.raises(plecs.BadAnswer):
        parse_waveforms(wrong)


def test_a_batch_answered_with_too_few_results_is_refused_whole():
    one = {"Time": [0], "Values": [[1]]}
    with pytest.raises(plecs.BadAnswer, match="a batch of 3 simulations was answered with 2 results"):
        parse_batch([one, one], 3)
    with pytest.raises(plecs.BadAnswer):
        parse_batch(one, 1)
    kinds = [type(found) for found in parse_batch([one, "Division by zero", {}, "busy"], 4)]
    assert kinds == [Waveforms, plecs.ModelError, plecs.NoOutput, plecs.PlecsBusy]


@pytest.mark.parametrize(
    "wrong", ["", "localhost:1080", "https://a:1", "http://", "http://a:b", "http://u@a:1", 17, None]
)
def test_a_wrong_address_is_refused_with_the_right_spelling(wrong):
    with pytest.raises(BadInput, match=r"http://127\.0\.0\.1:1080/RPC2"):
        Plecs(wrong)


def test_limits_have_units_and_are_above_zero():
    for wrong in (30, "0s"):
        with pytest.raises(BadInput):
            Plecs(timeout=wrong)


def test_the_resource_has_one_slot_and_a_name_per_address():
    one, same, other = (
        plecs_resource(),
        plecs_resource("http://127.0.0.1:1080"),
        plecs_resource("http://127.0.0.1:1081"),
    )
    assert isinstance(one, Resource)
    assert one.settings.slots == 1
    assert one.name == same.name != other.name


def test_a_folder_of_copies_that_others_can_write_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with StandIn() as stand_in:
        client = Plecs(stand_in.address)
        name = client.load_by_content(model)
        [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
        assert folder.stat().st_mode & 0o077 == 0
        client.close(name)
        folder.chmod(0o777)
        with pytest.raises(BadInput, match="can be written by others"):
            client.load_by_content(model)
    assert Path(folder, f"{name}.plecs").exists()


# -- the version in the key of results ---------------------------------------------------------------------------------


def test_the_version_of_plecs_counts_and_without_it_nothing_is_cached():
    with StandIn() as stand_in:
        plecs = Plecs(stand_in.address, timeout="5s")
        cache = plecs_cache(plecs, ttl="30d", environment={"solver": "dopri"})
        assert cache.ttl == timedelta(days=30)
        assert plecs.engine() == {"PLECS": stand_in.answer("plecs.statistics", ())["version"]}
        keys = CacheKeys(Definition(simulated), cache)
        around = keys.surroundings()
        assert around is not None
        assert {name: json.loads(form) for name, form in around.forms.items()} == {
            "PLECS": plecs.engine()["PLECS"], "solver": "dopri",
        }  # fmt: skip
        gone = Plecs(stand_in.address, timeout="5s")
    assert plecs.engine() is not None  # it is not asked again for a while
    assert gone.engine() is None
    assert CacheKeys(Definition(simulated), plecs_cache(gone)).surroundings() is None


def simulated(vin: float) -> float:
    return vin
