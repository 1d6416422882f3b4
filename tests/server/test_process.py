"""`daybreak serve` and `daybreak tokens` as people call them."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys

import httpx
import pytest

from daybreak.core.errors import BadInput
from daybreak.server.process import Bind, check_bind, is_loopback, settings_of
from daybreak.server.settings import ServerSettings

EVERYWHERE = "0.0.0.0"  # noqa: S104 - the bind that must be refused


@pytest.fixture
def run(tmp_path):
    """Runs a command line in a folder of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}

    def run(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "daybreak.cli", *words], cwd=tmp_path, env=env, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def served(tmp_path):
    """A server as a process of its own: its address, and its sign-in link."""
    started = []

    def start(*words):
        process = subprocess.Popen(
            [sys.executable, "-m", "daybreak.cli", "serve", "--port", "0", *words], cwd=tmp_path,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        first, second = process.stderr.readline(), process.stderr.readline()
        address = re.search(r"(https?://\S+?)\. ", first)
        assert address is not None, first
        return process, address[1], second.rpartition(" ")[2].strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_person_signs_in_by_the_link_and_the_server_stops_when_told(served):
    process, address, link = served()
    assert link.startswith(f"{address}/sign-in?code=")
    with httpx.Client(base_url=address) as client:
        assert client.get("/health/ready").json()["checks"][0]["status"] == "pass"
        assert client.get("/api/v1/session").json()["roles"] == ["read"]
        code = re.search(r'value="([^"]+)"', client.get(link).text)[1]
        assert client.post("/sign-in", data={"code": code}).status_code == 303
        assert client.get("/api/v1/session").json()["kind"] == "session"
        assert client.get("/health/live", headers={"host": "evil.test"}).status_code == 421
        assert "server" not in client.get("/health/live").headers
        csrf = client.get("/api/v1/session").json()["csrf"]
        assert client.post("/api/v1/jobs", json={"task": "mail"}, headers={"x-csrf-token": csrf}).status_code == 201
    process.terminate()
    assert process.wait(20) in (0, -15)
    _, address, _ = served()
    with httpx.Client(base_url=address, cookies=client.cookies) as again:  # the session outlives the server
        [entry] = again.get("/api/v1/audit").json()["entries"]
        assert (entry["action"], entry["request"]) == ("submit_job", '{"jobs": 1}')


def test_a_token_is_printed_once_listed_without_its_secret_and_revoked(run, served):
    text = run("tokens", "create", "ann", "--role", "read", "--queue", "mail").stdout.strip()
    assert text.startswith("daybreak_")
    listed = run("tokens", "list", "--json").stdout
    assert text.rpartition("_")[2] not in listed
    [token] = json.loads(listed)["tokens"]
    assert (token["name"], token["state"], token["roles"], token["queues"]) == ("ann", "active", ["read"], ["mail"])
    _, address, _ = served()
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {text}"}) as client:
        assert client.get("/api/v1/session").json()["by"] == "ann"
    assert "is revoked" in run("tokens", "revoke", "ann").stdout
    with httpx.Client(base_url=served()[1], headers={"authorization": f"Bearer {text}"}) as client:
        assert client.get("/api/v1/session").status_code == 401
    assert "revoked" in run("tokens", "list").stdout
    assert "no token" in run("tokens", "revoke", "bob", code=2).stderr


def test_it_refuses_to_start_where_others_could_listen_and_says_why(run):
    assert "tokens create" in run("serve", "--host", EVERYWHERE, "--port", "0", code=2).stderr
    run("tokens", "create", "ann", "--role", "admin")
    assert "plain text" in run("serve", "--host", EVERYWHERE, "--port", "0", code=2).stderr
    assert "belong together" in run("serve", "--tls-cert", "daybreak.db", code=2).stderr


@pytest.mark.parametrize(
    ("bind", "has_token", "told"),
    [
        (Bind(), False, None),
        (Bind(host="localhost"), False, None),
        (Bind(host="::1"), False, None),
        (Bind(host=EVERYWHERE), False, "no token"),
        (Bind(host="::"), True, "plain text"),
        (Bind(host=EVERYWHERE, behind_proxy=True), True, None),
        # A proxy brings others to a server that listens on this machine alone.
        (Bind(behind_proxy=True), False, "no token"),
        (Bind(behind_proxy=True), True, None),
        (Bind(host="no-such-host.invalid"), False, "no token"),
    ],
)
def test_which_binds_are_allowed(bind, has_token, told):
    if told is None:
        check_bind(bind, has_token=has_token)
    else:
        with pytest.raises(BadInput, match=told):
            check_bind(bind, has_token=has_token)


def test_reading_without_a_token_ends_where_others_can_come():
    assert settings_of(Bind(), ServerSettings()).anonymous_reads
    for bind in (Bind(host=EVERYWHERE), Bind(behind_proxy=True)):
        assert not settings_of(bind, ServerSettings()).anonymous_reads
    assert not is_loopback("")


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two certificates of their own authority, and the first key once more, protected by a password."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / f"{name}.key",
             "-out", folder / f"{name}.pem", "-days", "1", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
    secret = [
        "openssl",
        "rsa",
        "-aes256",
        "-passout",
        "pass:x",
        "-in",
        folder / "one.key",
        "-out",
        folder / "secret.key",
    ]
    subprocess.run(secret, check=True, capture_output=True)
    (folder / "empty.pem").touch()
    return folder


def test_with_a_certificate_it_answers_https_and_nothing_else(certificates, served, run):
    token = run("tokens", "create", "ann", "--role", "admin").stdout.split()[-1]
    words = ("--tls-cert", str(certificates / "one.pem"), "--tls-key", str(certificates / "one.key"))
    _, address, link = served(*words)
    assert address.startswith("https://127.0.0.1:")
    assert link.startswith(f"{address}/sign-in?code=")
    trusting = ssl.create_default_context(cafile=certificates / "one.pem")
    with httpx.Client(base_url=address, verify=trusting) as client:
        assert client.get("/health/live").status_code == 200
        answer = client.post("/api/v1/jobs", json={"task": "mail"}, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 201
        code = re.search(r'value="([^"]+)"', client.get(link).text)[1]
        assert "; secure" in client.post("/sign-in", data={"code": code}).headers["set-cookie"].lower()
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{address}/health/live", verify=ssl.create_default_context(cafile=certificates / "two.pem"))
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{address.replace('https', 'http')}/health/live")


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        ("one.pem", "two.key", "does not belong to the certificate"),
        ("one.pem", "secret.key", "is protected by a password"),
        ("empty.pem", "one.key", "both must be PEM files"),
        ("one.key", "one.pem", "both must be PEM files"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused_in_a_sentence(certificate, key, told, certificates, run):
    words = ("--tls-cert", str(certificates / certificate), "--tls-key", str(certificates / key))
    done = run("serve", "--port", "0", *words, code=2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
