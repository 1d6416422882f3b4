"""The clients of WATS against the stand-in and against hostile servers: every error has a meaning, and a lost answer is
resolved."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import json
import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import BadInput, File, Permanent, Resource, Secret, Transient
from daybreak.adapters import wats
from daybreak.adapters.wats import AsyncWats, Receipt, Wats, report_of, wats_resource
from daybreak.adapters.wats.answers import Answer, error_of, receipt_id, retry_after
from daybreak.adapters.wats.reports import contains
from daybreak.adapters.wats.stand_in import TOKEN, Faults, StandIn
from daybreak.policy.resources import parse_shares


def a_report(**changes):
    return {
        "type": "T", "id": str(uuid.uuid4()), "pn": "PART-001", "sn": "SN-001", "rev": "A", "processCode": 10,
        "result": "P", "machineName": "Station1", "location": "Lab", "purpose": "Production",
        "start": "2026-01-01T10:00:00+01:00", "uut": {"user": "op", "execTime": 5.0},
        "root": {"id": 1, "group": "M", "stepType": "SequenceCall", "name": "Main", "status": "P", "steps": []},
        **changes,
    }  # fmt: skip


class Blocking:
    """The async client, called as the blocking one, so that every test is of both."""

    def __init__(self, *args, **options):
        self._client = AsyncWats(*args, **options)

    def __getattr__(self, name):
        async def call(*args):
            try:
                return await getattr(self._client, name)(*args)
            finally:
                await self._client.close()

        return lambda *args: asyncio.run(call(*args))


@pytest.fixture(params=[Wats, Blocking], ids=["blocking", "async"])
def client_class(request):
    return request.param


@contextlib.contextmanager
def server(answer, *, is_plain=True):
    """A server that sends these bytes to every connection, or does what a function does with it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    if is_plain:
                        read_request(connection)
                    try:
                        if callable(answer):
                            answer(connection)
                        else:
                            connection.sendall(answer)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


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


def http(body: bytes = b"", status: str = "200 OK", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_report_is_uploaded_and_read_back(client_class, tmp_path):
    report, other = a_report(), a_report(sn="SN-002")
    path = tmp_path / "report.wsjf"
    path.write_text(json.dumps(report), encoding="utf-8")
    with StandIn() as stand_in:
        client = client_class(stand_in.url, Secret(TOKEN))
        assert client.submit(path) == Receipt(report["id"])
        assert client.submit(File(path)).id == report["id"]
        assert client.submit(json.dumps(other).encode()).id == other["id"]
        assert client.fetch(report["id"].upper()) == report
        assert client.fetch(str(uuid.uuid4())) is None
        assert client.has_report(other["id"])
        assert "not WATS" in client.version()
        assert client.is_available()
        assert stand_in.archive.reports == {report["id"]: report, other["id"]: other}
        assert stand_in.archive.uploads[report["id"]] == 2  # the second replaced the first
    assert not client.is_available()


def test_the_file_is_sent_as_it_is():
    content = b'\xef\xbb\xbf{"id": "00000000-0000-0000-0000-00000000000A", "value": 1.10,  "z": [1e300]}'
    report = report_of(content)
    assert report.content == content[3:]  # without the mark, which JSON does not have
    assert report.id == "00000000-0000-0000-0000-00000000000a"


def test_a_report_without_an_id_gets_one_that_is_made_from_its_content():
    fields = a_report()
    del fields["id"]
    one, again, other = report_of(fields), report_of(dict(fields)), report_of({**fields, "sn": "SN-2"})
    assert one == again
    assert one.id != other.id
    assert json.loads(one.content) == {**fields, "id": one.id}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no JSON"),
        (b'{"id": "x"', "no JSON"),
        (b'{"id": NaN}', "no JSON"),
        (b"[1]", "one JSON object"),
        (b"\xff\xfe{}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        ({"id": "../../etc"}, "GUID"),
        ({"id": 7}, "GUID"),
        ({"id": "00000000-0000-0000-0000-000000000001\n"}, "GUID"),
        ({"value": object()}, "cannot be written"),
    ],
)
def test_what_is_no_report_is_refused_before_it_is_sent(content, text):
    with pytest.raises(wats.InvalidReport, match=text) as refused:
        report_of(content)
    assert isinstance(refused.value, Permanent)


def test_a_missing_file_is_its_own_error_and_a_text_is_not_taken_for_a_path(tmp_path):
    with pytest.raises(FileNotFoundError):
        report_of(tmp_path / "missing.wsjf")
    with pytest.raises(BadInput, match="Path"):
        report_of("report.wsjf")


# -- unknown outcomes --------------------------------------------------------------------------------------------------


def test_if_the_answer_is_lost_the_server_is_asked_and_the_report_is_not_sent_again(client_class):
    report = a_report()
    with StandIn(Faults(lose=1)) as stand_in:
        assert client_class(stand_in.url, TOKEN).submit(report) == Receipt(report["id"], is_confirmed=True)
        assert stand_in.archive.uploads == {report["id"]: 1}


def test_a_report_that_the_server_does_not_have_is_transient_and_sent_again_by_the_retry(client_class):
    report = a_report()
    with StandIn(Faults(drop=1)) as stand_in:
        client = client_class(stand_in.url, TOKEN)
        with pytest.raises(wats.AnswerLost, match=report["id"]) as lost:
            client.submit(report)
        assert isinstance(lost.value, Transient)
        assert client.submit(report) == Receipt(report["id"])
        assert stand_in.archive.uploads == {report["id"]: 1}


def test_an_older_content_on_the_server_does_not_count_as_the_new_one():
    report = a_report()
    with StandIn() as stand_in, Wats(stand_in.url, TOKEN) as client:
        client.submit(report)
        stand_in.faults = Faults(drop=1)
        with pytest.raises(wats.AnswerLost):
            client.submit({**report, "result": "F"})
        assert client.submit({**report, "result": "F"}).is_confirmed is False
        assert stand_in.archive.reports[report["id"]]["result"] == "F"


def test_a_lost_answer_of_a_server_that_is_gone_stays_unknown(client_class):
    lost = pytest.raises(wats.AnswerLost, match="was lost before the answer")
    with server(lambda connection: connection.close()) as url, lost:
        client_class(url, TOKEN).submit(a_report())


def test_a_late_answer_is_an_unknown_outcome(client_class):
    report = a_report()
    with StandIn(Faults(slow=30)) as stand_in:
        began = time.monotonic()
        with pytest.raises(wats.AnswerLost, match="did not answer within 2 s"):
            client_class(stand_in.url, TOKEN, timeout="2s").submit(report)
        assert time.monotonic() - began < 20


def test_a_stored_report_may_say_more_than_was_sent_but_not_less():
    sent = {"id": "A", "n": 1, "none": None, "list": [{"a": 1.0}]}
    assert contains({"id": "a", "n": 1.0, "list": [{"a": 1, "b": 2}], "more": 1}, sent)
    for other in ({"n": 2}, {"list": []}, {"list": [{"a": 2}]}, {"list": {}}, {"none": 0}):
        assert not contains({"id": "a", "n": 1, "list": [{"a": 1}], **other}, sent)
    assert not contains(None, sent)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_server_that_refuses_connections_is_unavailable_and_nothing_was_sent(client_class):
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        client = client_class(f"http://127.0.0.1:{bound.getsockname()[1]}", TOKEN)
        with pytest.raises(wats.WatsUnavailable, match="nothing was sent") as error:
            client.submit(a_report())
    assert isinstance(error.value, Transient)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, wats.ReportRejected), (409, wats.ReportRejected), (413, wats.ReportRejected), (422, wats.ReportRejected),
        (401, wats.NotAuthorized), (403, wats.NotAuthorized),
        (404, wats.WrongAddress), (405, wats.WrongAddress), (302, wats.WrongAddress),
        (408, wats.WatsBusy), (425, wats.WatsBusy), (429, wats.WatsBusy), (500, wats.WatsBusy), (503, wats.WatsBusy),
        (599, wats.WatsBusy), (700, wats.BadAnswer),
    ],
)  # fmt: skip
def test_the_status_code_decides_whether_a_retry_helps(status, kind):
    answer = Answer(status, {"content-type": "application/json"}, b'{"Message": "sn is\\n missing \\u001b[31m"}')
    error = error_of(answer, "upload of report 7")
    assert type(error) is kind
    assert isinstance(error, Transient) == (kind in (wats.WatsBusy, wats.BadAnswer))
    assert isinstance(error, Permanent) != isinstance(error, Transient)
    assert "upload of report 7" in str(error)
    assert "\x1b" not in str(error)
    if kind is not wats.BadAnswer:
        assert error.status == status
    if kind in (wats.ReportRejected, wats.NotAuthorized, wats.WatsBusy):
        assert "sn is missing" in str(error)


def test_the_words_of_the_server_are_found_where_servers_put_them():
    def words(body, kind="application/json"):
        return str(error_of(Answer(400, {"content-type": kind}, body), "it")).removeprefix("it: WATS answered HTTP 400")

    assert words(b'{"error": "no sn"}') == ": no sn"
    assert words(b'"no sn"') == ": no sn"
    assert words(b"no sn", "text/plain") == ": no sn"
    assert words(b"<html>no sn", "text/html") == ""
    assert words(b'{"message": 7}') == ""
    assert words(b"x" * 10_000, "text/plain") == f": {'x' * 500} ..."


def test_what_the_server_asks_to_wait_is_the_delay_of_the_retry(client_class):
    refused = pytest.raises(wats.WatsBusy, match="429: too many requests")
    with StandIn(Faults(busy=1, retry_after=7)) as stand_in, refused as busy:
        client_class(stand_in.url, TOKEN).submit(a_report())
    assert busy.value.retry_after == timedelta(seconds=7)


def test_a_retry_after_is_in_seconds_or_a_date_and_at_most_a_day():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for text, seconds in {
        "7": 7, " 0 ": 0, "9" * 5000: 86_400, "Thu, 01 Jan 2026 00:01:00 GMT": 60, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
        "Thu, 01 Jan 2099 00:00:00 GMT": 86_400,
    }.items():  # fmt: skip
        assert retry_after({"retry-after": text}, now) == timedelta(seconds=seconds), text
    for text in ("", "-5", "soon", "1.5", "Thu, 01 Jan 2026 00:01:00"):
        assert retry_after({"retry-after": text}, now) is None


def test_a_wrong_token_and_a_rejected_report_are_permanent(client_class):
    with StandIn() as stand_in:
        with pytest.raises(wats.NotAuthorized, match="check the token"):
            client_class(stand_in.url, "other").submit(a_report())
        with pytest.raises(wats.ReportRejected, match="400: sn: a text is required"):
            client_class(stand_in.url, TOKEN).submit(a_report(sn=""))
        assert stand_in.archive.reports == {}
        counts = stand_in.counts()
        assert (counts["unauthorized"], counts["rejected"]) == (1, 1)


@pytest.mark.parametrize("body", [b"<html>Please sign in", b"", b"[]", b'{"ID": 7}', b'"another"'])
def test_an_answer_that_does_not_name_the_report_does_not_count_as_an_upload(client_class, body):
    with server(http(body)) as url, pytest.raises(wats.BadAnswer, match="does not name the report"):
        client_class(url, TOKEN).submit(a_report())


def test_the_id_is_found_in_every_form_that_the_server_answers():
    for body in (b'[{"ID": "A1"}]', b'{"id": "a1"}', b'{"uuid": "a1"}', b'"A1"'):
        assert receipt_id(body) == "a1"
    for body in (b"", b"[]", b"{}", b"7", b"<p>"):
        assert receipt_id(body) is None


def test_redirects_are_not_followed_with_the_token(client_class):
    seen = []
    with server(seen.append) as other:
        redirect = http(status="302 Found", headers=f"Location: {other}/login\r\n")
        with server(redirect) as url, pytest.raises(wats.WrongAddress, match="/login"):
            client_class(url, TOKEN).submit(a_report())
    assert seen == []


def test_an_endless_answer_ends(client_class, monkeypatch):
    monkeypatch.setattr("daybreak.adapters.wats.connection.MAX_ANSWER_BYTES", 100_000)

    def flood(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65_536)

    with server(flood) as url, pytest.raises(wats.BadAnswer, match="the answer is over"):
        client_class(url, TOKEN).version()


def test_an_answer_that_comes_byte_by_byte_ends_at_the_time_limit(client_class):
    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    with server(drip) as url, pytest.raises(wats.AnswerLost, match=r"within 0\.3 s"):
        client_class(url, TOKEN, timeout="300ms").version()


def test_errors_can_be_copied():
    error = copy.copy(wats.WatsBusy("busy", status=429, retry_after=timedelta(seconds=3)))
    assert (str(error), error.status, error.retry_after) == ("busy", 429, timedelta(seconds=3))


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "wats.com", "ftp://wats.com", "http://", "https://wats.com?x=1", "https://wats.com/#a", "http://x:99999", None,
     "https://wats .com", "https://u:secret@wats.com", "https://wäts.com"],
)  # fmt: skip
def test_a_wrong_address_is_refused_with_the_right_spelling(url):
    with pytest.raises(BadInput, match="WATS address") as refused:
        Wats(url, TOKEN)
    assert "secret" not in str(refused.value)


def test_a_path_before_the_api_is_kept():
    assert Wats("https://example.com/wats/", TOKEN).url == "https://example.com/wats"


@pytest.mark.parametrize("token", ["", None, "Basic hunter2", "hunter2\n", "hunter2ä", 7, Secret("hunter2 ")])
def test_a_wrong_token_is_refused_and_not_shown(token):
    with pytest.raises(BadInput, match="token") as refused:
        Wats("https://wats.example", token)
    assert "hunter" not in str(refused.value)


def test_limits_are_durations():
    for limits in ({"timeout": "0s"}, {"connect_timeout": timedelta()}, {"timeout": "soon"}, {"timeout": 5}):
        with pytest.raises(BadInput, match="timeout"):
            Wats("https://wats.example", TOKEN, **limits)


def test_wrong_certificates_and_proxies_are_refused(tmp_path):
    with pytest.raises(BadInput, match="certificates cannot be read"):
        Wats("https://wats.example", TOKEN, verify=str(tmp_path / "none.pem")).version()
    with pytest.raises(BadInput, match="proxy"):
        Wats("https://wats.example", TOKEN, proxy="gopher://proxy").version()


def test_requests_go_through_the_proxy():
    asked = []

    def proxy(connection):
        asked.append(True)
        connection.sendall(http(b'"9.9"'))

    with server(proxy) as url:
        assert Wats("http://wats.example", TOKEN, proxy=url).version() == "9.9"
    assert asked == [True]


def test_the_token_appears_in_no_text_and_no_log(caplog):
    caplog.set_level(logging.DEBUG)
    secret = "hunter2"  # noqa: S105
    with StandIn(token=secret, faults=Faults(errors=1)) as stand_in:
        client = Wats(stand_in.url, Secret(secret))
        with pytest.raises(wats.WatsBusy) as error:
            client.submit(a_report())
        assert client.submit(a_report()).id
        texts = [repr(client), repr(client._settings), repr(error.value), caplog.text, str(vars(client))]
    assert not any(secret in text for text in texts)


def test_an_error_that_repeats_the_token_does_not_show_it(client_class):
    echo = http(b'{"Message": "bad token hunter2"}', "401 Unauthorized")
    with server(echo) as url, pytest.raises(wats.NotAuthorized, match=r"bad token \*\*\*"):
        client_class(url, "hunter2").submit(a_report())


def test_a_server_with_a_certificate_of_its_own_is_trusted_if_that_is_given(client_class, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def answer(connection):
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            read_request(secured)
            secured.sendall(http(b'"9.9"'))

    with server(answer, is_plain=False) as address:
        url = address.replace("http:", "https:")
        assert client_class(url, TOKEN, verify=str(certificate)).version() == "9.9"
        with pytest.raises(wats.WatsUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            client_class(url, TOKEN).version()


def test_threads_share_a_client_and_loops_do_not_share_connections():
    with StandIn(Faults(slow=0.01)) as stand_in:
        client, errors = Wats(stand_in.url, TOKEN), []

        def upload():
            try:
                client.submit(a_report())
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=upload) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        client.submit(a_report())  # opens new connections
        shared = AsyncWats(stand_in.url, TOKEN)

        async def upload_and_close():
            async with shared:
                await shared.submit(a_report())

        for _ in range(2):
            asyncio.run(upload_and_close())
        assert (errors, len(stand_in.archive.reports)) == ([], 11)


def test_both_clients_have_the_same_calls():
    def calls(kind):
        return {name for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"}

    assert calls(Wats) == calls(AsyncWats)
    for name in calls(Wats):
        assert list(inspect.signature(getattr(Wats, name)).parameters) == list(
            inspect.signature(getattr(AsyncWats, name)).parameters
        )


def test_the_resource_has_five_slots_and_a_breaker():
    [share] = parse_shares(wats_resource())
    assert isinstance(share.resource, Resource)
    settings = share.resource.settings
    assert (share.resource.name, settings.slots) == ("wats", 5)
    assert (settings.breaker.failures, settings.breaker.open_for) == (5, timedelta(seconds=60))
    assert wats_resource("wats oslo", slots=2, breaker=False).settings.breaker is None


def test_every_error_is_named_in_the_package():
    from daybreak.adapters.wats import errors

    names = {name for name in re.findall(r"[├└]── (\w+) +\w", errors.__doc__) if name not in ("Transient", "Permanent")}
    assert {*names, "WatsError"} <= set(wats.__all__)
    assert len(names) == 8
