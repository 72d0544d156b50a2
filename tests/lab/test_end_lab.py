"""A run that its time limit ends while nobody watches, and who is told of it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from driving import (
    LINKED,
    STUBBED,
    cctl,
    kill_leftovers,
    make_project,
    start_cctl,
    wait_until_gone,
)
from victims import PLAIN, begin
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

if TYPE_CHECKING:
    from conftest import Webhook


def test_a_time_limit_that_nobody_watches(cluster: Lab, tmp_path: Path, webhook: Webhook) -> None:
    """The nodes end the run themselves, all of them for that reason; the attach that comes later tells, once."""
    url, got = webhook.url, webhook.got
    notify = [{"to": "webhook", "url_from": "HOOK_URL", "when": ["timeout"]}]
    job = make_project(tmp_path, LINKED, launcher="python", time_limit="1h", notify=notify, nodes=2)
    plan = cctl(cluster, "launch", job, "--dry-run")
    started = cctl(cluster, "launch", job, "-d", "--set", "time_limit=2s", XDG_STATE_HOME=str(tmp_path))
    run = started.out.strip()
    wait_until_gone(cluster)
    state = json.loads(cctl(cluster, "status", run, "--json", XDG_STATE_HOME=str(tmp_path)).out)
    ends = [cctl(cluster, "attach", run, XDG_STATE_HOME=str(tmp_path), HOOK_URL=url) for _ in range(2)]

    assert "# when it has ended (timeout): a message to webhook, its URL from $HOOK_URL" in plan.out
    assert "notifications and on_end run only while you are attached" in started.err
    assert (state["run"]["state"], {node["reason"] for node in state["nodes"]}) == (
        "TIMEOUT",
        {"time limit of 2 s"},
    )
    assert [end.code for end in ends] == [1, 1]
    assert "time limit of 2 s" in ends[0].err
    assert re.search(rf"✗ TIMEOUT after .*{run}", ends[0].err)
    assert "sent: a message to webhook, its URL from $HOOK_URL" in ends[0].err
    assert "sent:" not in ends[1].err
    assert "tok-12345678" not in ends[0].err + ends[0].out
    assert [(body["run"], body["verdict"]["state"]) for body in got] == [(run, "TIMEOUT")]
    kill_leftovers(cluster)


DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("settled", flush=True)
time.sleep(600)
"""


def test_a_stop_says_what_it_waits_for_and_goes_on_without_us(cluster: Lab, tmp_path: Path) -> None:
    """The script ignores SIGTERM: `stop` begins with a line; after Ctrl-C the nodes go on, and `status` shows that."""
    job = make_project(tmp_path, DEAF, env=STUBBED, nodes=2)
    run = cctl(cluster, "launch", job, "-d").out.strip()
    wait_until(lambda: cctl(cluster, "logs", run).out.count("settled") == 2, "all ranks ignore SIGTERM")
    stopping = start_cctl(cluster, "stop", run, "--grace", "600")
    assert stopping.stderr is not None
    while "stopping" not in (line := stopping.stderr.readline()):
        assert stopping.poll() is None
    wait_until(lambda: "being stopped" in cctl(cluster, "status", run).out, "status shows the stop")
    stopping.send_signal(signal.SIGINT)
    _, err = stopping.communicate(timeout=HANG)
    live = json.loads(cctl(cluster, "status", run, "--json").out)
    ended = cctl(cluster, "stop", run, "--grace", "0")

    names = [node.name for node in cluster.nodes[:2]]
    assert f"stopping {run} on gpu[01-02], grace period 600 s" in line
    assert stopping.returncode == 130
    assert "the nodes continue to stop the run" in err
    assert f"clusterctl status {run}" in err
    assert live["run"]["state"] == "RUNNING"
    assert [node["stopping"].startswith("stopped by ") for node in live["nodes"]] == [True] * len(names)
    assert ended.code == 0, ended.err
    assert f"{run}: stopped" in ended.out


def test_a_sigterm_to_one_agent_blames_no_rank(cluster: Lab, tmp_path: Path) -> None:
    """As by a service manager: every node and every verb names that agent, and no rank is called the cause."""
    struck = begin("terminated", cluster, cluster.nodes[:3], tmp_path, worker=PLAIN)
    wait_until(struck.settled, "all ranks are at work")
    node, run = cluster.nodes[1], struck.run
    struck.signal(node, "agent", "TERM")
    code = struck.ended(HANG)
    attached = cctl(cluster, "attach", run)
    state = json.loads(cctl(cluster, "status", run, "--json").out)
    listed = json.loads(cctl(cluster, "ps", "--json").out)

    reason = f"stopped by SIGTERM to the agent on {node.name}"
    for said in (struck.err, attached.err):
        assert "STOPPED after" in said
        assert reason in said
        assert not re.search(r"rank \d", said)
    assert (code, attached.code) == (1, 1)
    assert state["run"]["state"] == "STOPPED"
    assert {part["reason"] for part in state["nodes"]} == {reason}
    assert [one["state"] for one in listed["runs"] if one["run"] == run] == ["STOPPED"]
    assert not struck.left()
