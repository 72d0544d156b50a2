"""A run that its time limit ends while nobody watches, and who is told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from driving import cctl, kill_leftovers, leftovers, make_project
from waiting import wait_until

from clusterctl.lab.labs import Lab

if TYPE_CHECKING:
    from conftest import Webhook


# Reduces for ever: when one node's ranks are ended first, the others' connections break.
REDUCING = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
print("reducing", flush=True)
while True:
    dist.all_reduce(torch.ones(1))
"""


def test_a_time_limit_that_nobody_watches(cluster: Lab, tmp_path: Path, webhook: Webhook) -> None:
    """The nodes end the run themselves, all of them for that reason; the attach that comes later tells, once."""
    url, got = webhook.url, webhook.got
    notify = [{"to": "webhook", "url_from": "HOOK_URL", "when": ["timeout"]}]
    job = make_project(tmp_path, REDUCING, time_limit="1h", notify=notify, nodes=2)
    plan = cctl(cluster, "launch", job, "--dry-run")
    started = cctl(cluster, "launch", job, "-d", "--set", "time_limit=2s", XDG_STATE_HOME=str(tmp_path))
    run = started.out.strip()
    wait_until(lambda: not leftovers(cluster), "the end of all")
    state = json.loads(cctl(cluster, "status", run, "--json", XDG_STATE_HOME=str(tmp_path)).out)
    ends = [cctl(cluster, "attach", run, XDG_STATE_HOME=str(tmp_path), HOOK_URL=url) for _ in range(2)]

    assert "# when it has ended (timeout): a message to webhook, its URL from $HOOK_URL" in plan.out
    assert "no hook reports its end until you attach again" in started.err
    assert (state["run"]["state"], {node["reason"] for node in state["nodes"]}) == (
        "TIMEOUT",
        {"time limit of 2 s"},
    )
    assert [end.code for end in ends] == [1, 1]
    assert "time limit of 2 s" in ends[0].err
    assert f"{run}: TIMEOUT after" in ends[0].err
    assert "sent: a message to webhook, its URL from $HOOK_URL" in ends[0].err
    assert "sent:" not in ends[1].err
    assert "tok-12345678" not in ends[0].err + ends[0].out
    assert [(body["run"], body["verdict"]["state"]) for body in got] == [(run, "TIMEOUT")]
    kill_leftovers(cluster)
