"""`daybreak alerts`: what is wrong now, since when, and what to do."""

from __future__ import annotations

import click

from daybreak.api.alerts import read_alerts
from daybreak.api.views.alert import alerts_view
from daybreak.cli.options import as_json
from daybreak.cli.output import Column, heading, say, say_json, say_table
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.text import ago, safe
from daybreak.core.units import moment
from daybreak.policy.alerts import BY_NAME, Alert, AlertState, alert_text


@click.command(name="alerts", short_help="Show which alerts are raised, and what to do.")
@as_json
def command(as_json: bool) -> int:
    """Show which alerts are raised, since when, and what to do about each.

    Workers and servers check every 15 seconds. The table [alerts] of daybreak.toml sets the thresholds, and where
    notices are sent. The exit code is 1 while an alert is critical.

    Examples:
      daybreak alerts
      daybreak alerts --json

    """
    return session().run(lambda client: _show(client, as_json=as_json))


store_options(command)


async def _show(client: Client, *, as_json: bool) -> int:
    state = await read_alerts(client)
    raised = [alert for alert in state.alerts if alert.level != "ok"]
    code = int(any(alert.level == "critical" for alert in raised))
    if as_json:
        say_json(alerts_view(state))
        return code
    if state.looked_at is None:
        say("Not checked yet: start a worker or daybreak serve, which check the alerts.")
        return 0
    now = moment(client.wall())
    if raised:
        _say_alerts(raised, client)
    else:
        say("No alert is raised.")
    say(f"Checked {ago(state.looked_at, now)}.")
    _say_failed_deliveries(state)
    return code


def _say_alerts(raised: list[Alert], client: Client) -> None:
    now = moment(client.wall())
    say_table(
        [Column("LEVEL"), Column("RULE"), Column("SINCE"), Column("WHAT")],
        [[alert.level, alert.rule, ago(alert.since, now), safe(_sentence(alert))] for alert in raised],
    )
    say("")
    for alert in raised:
        rule = BY_NAME.get(alert.rule)
        if rule is not None:
            say(safe(f"{alert.rule} of {alert.subject}: {rule.advice.format(subject=alert.subject)}"))


def _sentence(alert: Alert) -> str:
    rule = BY_NAME.get(alert.rule)
    return alert.subject if rule is None else alert_text(rule, alert)


def _say_failed_deliveries(state: AlertState) -> None:
    failed = [(notice, sink, error) for notice in state.notices for sink, error in notice.errors.items()]
    if not failed:
        return
    heading("Notices that could not be delivered")
    for notice, sink, error in failed[-10:]:
        say(safe(f"{notice.id} to the {sink}: {error}"))
