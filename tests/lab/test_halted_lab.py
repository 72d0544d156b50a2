"""A torchrun that is halted while its ranks end: node, process and command are named; continued, the run ends well."""

from __future__ import annotations

import json
from pathlib import Path

from driving import cctl, leftovers
from victims import PLAIN, begin
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab


def test_a_halted_torchrun_is_named_until_it_continues(cluster: Lab, tmp_path: Path) -> None:
    """By launch, status, diagnose and the events; once all ranks have ended the run counts as stalled."""
    struck = begin("halted", cluster, cluster.nodes[:2], tmp_path, worker=PLAIN, stall="2s")
    wait_until(struck.settled, "all ranks are at work")
    node, run = cluster.nodes[1], struck.run
    pid = struck.find(node, "torchrun").pid
    struck.signal(node, "torchrun", "STOP")
    command = f"clusterctl exec --nodes {node.name} -- kill -CONT {pid}"
    notice = f"{node.name}: torchrun is halted (SIGSTOP, pid {pid}); to continue it: {command}"
    wait_until(lambda: notice in struck.err, "the notice")
    struck.finish()
    sentence = f"torchrun on {node.name} (pid {pid}) is halted by a signal or a debugger (CC-HANG-013)"
    wait_until(lambda: sentence in struck.err, "the stall")
    status, asked = cctl(cluster, "status", run), cctl(cluster, "diagnose", run)
    as_json = json.loads(cctl(cluster, "status", run, "--json").out)
    cctl(cluster, "exec", "--nodes", node.name, "--", "kill", "-CONT", pid)
    code = struck.ended(HANG)
    events = node.run(
        ["sh", "-c", f"cat {cluster.plan.account.home}/.clusterctl/runs/{run}/*-{node.name}/events.jsonl"]
    )
    entries = [json.loads(line) for line in events.stdout.splitlines()]

    assert code == 0, struck.err
    assert command in " ".join(status.out.split())
    assert sentence in asked.out and command in asked.out
    assert as_json["run"]["state"] == "STALLED"
    assert [one["halted"] for one in as_json["nodes"]] == [[], [{"process": "torchrun", "pid": pid}]]
    changes = [(one["event"], one["process"], one["pid"]) for one in entries if "process" in one]
    assert changes[0] == ("halted", "torchrun", pid)  # it may end before it is seen to continue
    assert "stalled" in [one["event"] for one in entries]
    assert not leftovers(cluster)
