"""`/runs`: runs over HTTP."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from click.testing import CliRunner
from server_world import problem

from daybreak.cli.root import root
from daybreak.core.model import Done
from daybreak.server.bodies.runs import RunBody

API = "/api/v1/runs"


@pytest.fixture
def swept(app, jobs):
    """Submits a run of four points."""

    @app.task(retry=1)
    def simulate(vin: float, duty: float) -> dict[str, float]:
        raise NotImplementedError

    async def make(name="night", *, queue="default", **options):
        await app.asweep(simulate, {"vin": [10, 12], "duty": [0.25, 0.5]}, name=name, queue=queue, **options)

    return make


async def test_a_run_is_the_same_over_http_and_on_the_command_line(connect, swept, app, tmp_path):
    await swept()
    web = await connect()
    found = (await web.get(f"{API}/night")).json()
    words = ["runs", "show", "night", "--json", "--url", str(tmp_path / "jobs.db")]
    result = await asyncio.to_thread(CliRunner().invoke, root, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == found
    assert list(found) == [field.name for field in msgspec.structs.fields(RunBody)]
    msgspec.convert(found, RunBody)


async def test_runs_are_listed_in_pages_the_newest_first(connect, swept):
    for name in ("a", "b", "c"):
        await swept(name)
    web = await connect()
    first = (await web.get(API, params={"limit": 2})).json()
    assert [run["name"] for run in first["runs"]] == ["c", "b"]
    rest = (await web.get(API, params={"limit": 2, "cursor": first["cursor"]})).json()
    assert ([run["name"] for run in rest["runs"]], rest["cursor"]) == (["a"], None)


async def test_a_caller_sees_and_changes_only_runs_of_its_queues(connect, swept, make_token):
    await swept("mine", queue="mail")
    await swept("other", queue="lab")
    web = await connect(await make_token("ann", "submit", queues=["mail"]))
    assert [run["name"] for run in (await web.get(API)).json()["runs"]] == ["mine"]
    for path in ("other", "other/rows"):
        problem(await web.get(f"{API}/{path}"), 403, "forbidden")
    problem(await web.post(f"{API}/other/cancel"), 403, "forbidden")
    assert "other" not in problem(await web.get(f"{API}/othr"), 404, "not-found")["detail"]
    assert (await web.post(f"{API}/mine/cancel")).json() == {"run": "mine", "changed": 4}
    problem(await web.delete(f"{API}/mine"), 403, "forbidden")


async def test_rows_have_arguments_and_results_in_pages(connect, swept, jobs):
    await swept()
    for lease in (await jobs.claim())[:1]:
        await jobs.settle(lease, Done(b'{"vout": 2.5}'))
    web = await connect()
    rows, cursor = [], None
    while True:
        page = (
            await web.get(f"{API}/night/rows", params={"limit": 3, **({"cursor": cursor} if cursor else {})})
        ).json()
        rows += page["rows"]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert [row["point"] for row in rows] == [3, 2, 1, 0]
    assert (rows[-1]["vin"], rows[-1]["duty"], rows[-1]["vout"], rows[-1]["state"]) == (10.0, 0.25, 2.5, "completed")
    assert "vout" not in rows[0]


async def test_a_run_is_changed_as_a_whole(connect, swept, make_token):
    await swept()
    web = await connect(await make_token("ann"))

    async def states():
        return {name: n for name, n in (await web.get(f"{API}/night")).json()["jobs"].items() if n}

    assert (await web.post(f"{API}/night/suspend", json={"note": "licence"})).json() == {"run": "night", "changed": 4}
    assert await states() == {"suspended": 4}
    assert (await web.get(f"{API}/night")).json()["note"] == "licence"
    assert (await web.post(f"{API}/night/resume")).json()["changed"] == 4
    assert (await web.put(f"{API}/night/priority", json={"priority": "low"})).json()["changed"] == 4
    assert (await web.get(f"{API}/night")).json()["priority"] == 7
    problem(await web.put(f"{API}/night/priority", json={"priority": "lowish"}), 422, "invalid")
    problem(await web.delete(f"{API}/night"), 409, "conflict")
    assert (await web.post(f"{API}/night/cancel")).json()["changed"] == 4
    assert (await web.post(f"{API}/night/retry")).json()["changed"] == 0
    assert (await web.post(f"{API}/night/retry", json={"state": "cancelled"})).json()["changed"] == 4
    assert await states() == {"queued": 4}
    assert (await web.delete(f"{API}/night", params={"force": "true"})).json() == {"run": "night", "changed": 4}
    assert "no run named 'night'" in problem(await web.get(f"{API}/night"), 404, "not-found")["detail"]


async def test_a_change_with_the_same_key_is_made_once_and_audited(connect, swept, make_token):
    await swept()
    web = await connect(await make_token("ann"))
    headers = {"Idempotency-Key": "k1"}
    first = await web.post(f"{API}/night/cancel", headers=headers)
    assert (
        (await web.post(f"{API}/night/cancel", headers=headers)).json()
        == first.json()
        == {"run": "night", "changed": 4}
    )
    entries = (await web.get("/api/v1/audit")).json()
    assert "/runs/night/cancel" in json.dumps(entries)
