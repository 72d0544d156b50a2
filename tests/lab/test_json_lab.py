"""What verbs write with `--json` about real nodes is what `clusterctl help json VERB` says, errors included."""

from __future__ import annotations

import json
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from driving import Result, cctl, leftovers, make_project, read_until, start_cctl
from pydantic import TypeAdapter
from waiting import HANG

from clusterctl.console.documents.schema import VERBS
from clusterctl.lab.labs import Lab

SLEEPING = """
import time
print("asleep", flush=True)
time.sleep(600)
"""
OFF = "nodes: [{host: 127.0.0.1, name: off, ssh: {port: 1, user: nobody}}]\n"


def read_document(verb: str, done: Result) -> dict[str, Any]:
    """Read the one document of a verb, and compare it with what is declared."""
    document: dict[str, Any] = json.loads(done.out)
    kinds: Any = reduce(or_, VERBS[verb].kinds)
    adapter = TypeAdapter(kinds)
    assert json.loads(adapter.dump_json(adapter.validate_json(done.out, strict=True))) == document
    return document


def test_a_run_from_its_start_to_its_stop(cluster: Lab, tmp_path: Path) -> None:
    """`ps`, `status`, `stop`, `report`, `top --once`, `clean`: each a document that a program can rely on."""
    launching = start_cctl(cluster, "launch", "--json", make_project(tmp_path, SLEEPING, nodes=2))
    run = json.loads(read_until(launching, "asleep"))["run"]

    listed = read_document("ps", cctl(cluster, "ps", "--json"))
    assert [entry["state"] for entry in listed["runs"] if entry["run"] == run] == ["RUNNING"]
    read_document("top", cctl(cluster, "top", "--once", "--json"))
    stopped = read_document("stop", cctl(cluster, "stop", run, "-y", "--json"))
    assert (stopped["run"], stopped["missed"], len(stopped["nodes"])) == (run, [], 2)
    assert [process for node in stopped["nodes"].values() for process in node["ended"]]
    assert [process for node in stopped["nodes"].values() for process in node["left"]] == []
    out, _ = launching.communicate(timeout=HANG)
    assert json.loads(out.splitlines()[-1])["verdict"]["state"] == "STOPPED"

    shown = read_document("status", cctl(cluster, "status", run, "--json"))
    assert shown["run"]["state"] == "STOPPED"
    report = read_document("report", cctl(cluster, "report", run, "--json", "-o", str(tmp_path / "run.html")))
    assert Path(report["file"]).stat().st_size == report["bytes"]
    assert read_document("clean", cctl(cluster, "clean", "--warm", "--json"))["warm"] == []
    assert read_document("clean", cctl(cluster, "clean", "--orphans", "--json"))["orphans"] == []
    assert leftovers(cluster) == {}


def test_a_node_that_is_not_reached_is_an_error(tmp_path: Path) -> None:
    """Exit code 4, and the node with its code and its fix on stdout, for every verb that has no other document then."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(OFF)
    for verb in ("status", "stop", "diagnose", "report", "pull"):
        done = cctl(None, "-i", str(inventory), verb, "--json")
        assert done.code == 4, (verb, done)
        (error,) = json.loads(done.out)["errors"]
        assert (error["code"], error["place"]) == ("CC-SSH-002", "off"), (verb, error)
        TypeAdapter(VERBS["error"].kinds[0]).validate_json(done.out, strict=True)
