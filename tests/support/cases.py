"""Reads the cases of checks: a healthy cluster, what differs from it, and the findings that follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clusterctl import errors
from clusterctl.codes.lookup import REPORTED
from clusterctl.plans.checks.framework import Finding, LocalFacts, Observations
from clusterctl.plans.checks.registry import (
    CheckSelection,
    choose_checks,
    evaluate,
    resolve_waivers,
)
from clusterctl.plans.diagnose.network_tests import LINE_PREFIX, DeepCheckResult, parse_deep_result
from clusterctl.plans.facts.facts import parse_facts, plan_neighbours, with_session_output
from clusterctl.plans.launch.script import JobCode, ScriptUse
from clusterctl.plans.sync.staged import parse_staged
from clusterctl.protocol.messages.checks import MASTER, MESH, MeshPath, MeshResult
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node, Ssh, Waiver
from clusterctl.specs.job.checkpoints import Checkpoints
from clusterctl.specs.job.model import Job, Restart
from clusterctl.specs.job.stage import Stage

HERE = Path(__file__).parents[1] / "plans" / "cases"
ASKED, HEARD = 1790000000.0, 1790000000.07  # our clock around the healthy node's answer


@cache
def read_cases(name: str) -> list[dict[str, Any]]:
    """Read one family's cases."""
    return list(YAML(typ="safe").load((HERE / f"{name}.yaml").read_text()))


def healthy_answer(number: int) -> dict[str, Any]:
    """Give the raw answer of healthy node `gpuN`, without routes."""
    return dict(json.loads(_healthy(number)))


def _healthy(number: int) -> str:
    return _healthy_text().replace("NUMBER", str(number))


@cache
def _healthy_text() -> str:
    text = (HERE / "healthy.yaml").read_text().replace("{n}", "NUMBER")
    return json.dumps(YAML(typ="safe").load(text))


def _routes(number: int, count: int) -> dict[str, Any]:
    others = (other for other in range(1, count + 1) if other != number)
    return {
        f"gpu{n}": {"address": f"10.0.0.{n}", "source": f"10.0.0.{number}", "nic": "eth0"} for n in others
    }


def change(tree: Any, dotted: str, value: Any) -> None:
    """Set the value at a path such as `nics.1.mtu`; the word `gone` removes it."""
    *path, last = dotted.split(".")
    for key in path:
        tree = tree[int(key)] if isinstance(tree, list) else tree.setdefault(key, {})
    if value == "gone":
        del tree[int(last) if isinstance(tree, list) else last]
    elif isinstance(tree, list):
        tree[int(last)] = value
    else:
        tree[last] = value


def answers(case: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the raw answers of a case's nodes; `all` changes every one of them."""
    count = case.get("nodes", 3)
    raw = {f"gpu{n}": {**healthy_answer(n), "routes": _routes(n, count)} for n in range(1, count + 1)}
    for name, changes in case.get("facts", {}).items():
        for one in raw if name == "all" else name.split(","):
            for dotted, value in changes.items():
                change(raw[one], dotted.replace("~", "."), deepcopy(value))
    return raw


def nodes(case: Mapping[str, Any]) -> tuple[Node, ...]:
    """Give the inventory's nodes of a case."""
    wanted = case.get("inventory", {})
    found = []
    for rank in range(case.get("nodes", 3)):
        node = Node(name=f"gpu{rank + 1}", index=rank, host=f"10.0.0.{rank + 1}", ssh=Ssh(user="alice"))
        values = {**wanted.get("all", {}), **wanted.get(node.name, {})}
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        if "ssh" in values:
            values["ssh"] = Ssh(**values["ssh"])
        found.append(replace(node, **values))
    return tuple(found)


def judge(case: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Evaluate a case."""
    failures = {name: _failure(written) for name, written in case.get("failures", {}).items()}
    facts: dict[str, Facts] = {
        name: parse_facts(raw, sent_at=ASKED, received_at=HEARD)
        for name, raw in answers(case).items()
        if name not in failures
    }
    for name, said in case.get("noise", {}).items():  # what the login shell prints, in one line or more
        facts[name] = with_session_output(facts[name], "", said.encode())
    written = case.get("here", {})
    job = job_of(case["job"]) if "job" in case else None
    code = code_of(written["code"], case.get("nodes", 3)) if "code" in written else None
    here = LocalFacts(written.get("open_keys", {}), tuple(written.get("beside_script", ())), code)
    staged = {name: parse_staged(Untrusted({"staged": raw})) for name, raw in case.get("staged", {}).items()}
    observed = Observations(facts, failures, wire_of(case), deep_of(case), here, staged)
    return evaluate(nodes(case), observed, job, choice_of(case))


def job_of(written: Mapping[str, Any]) -> Job:
    """Return the job of a case; its `stage` is a list of sources."""
    stage = tuple(Stage(source=source) for source in written.get("stage", ()))
    groups = {
        key: kind(**written[key])
        for key, kind in (("restart", Restart), ("checkpoints", Checkpoints))
        if key in written
    }
    return Job(**{"name": "j", "file": "job.yaml", "script": "t.py", **written, **groups, "stage": stage})


def code_of(files: Mapping[str, str], nnodes: int) -> JobCode:
    """Read the code of a case: the texts of its files; `t.py` is the script."""
    use = ScriptUse()
    for path, text in files.items():
        use.add_file(path, text.encode())
    return JobCode(nnodes, frozenset(files), {"t.py": files.get("t.py", "")}, use)


def choice_of(case: Mapping[str, Any]) -> CheckSelection:
    """Give the chosen checks and the waivers of a case: `only`, `skip`, and `waive` as in a file."""
    written = case.get("waive", [])
    waivers = [Waiver(**{"nodes": "all", "file": "inventory.yaml", **one}) for one in written]
    names = [node.name for node in nodes(case)]
    left_out = choose_checks(case.get("only", []), case.get("skip", []))
    return CheckSelection(left_out, resolve_waivers(waivers, names))


def deep_of(case: Mapping[str, Any]) -> DeepCheckResult | None:
    """Give the deep check of a case: what its leader would have written, read as that is read."""
    written = case.get("deep")
    if written is None:
        return None
    names = tuple(node.name for node in nodes(case))
    trouble = {
        "trouble": written.get("trouble", ""),
        "fix": written.get("fix", ""),
        "at": tuple(written.get("at", ())),
    }
    said = [*written.get("rounds", ()), *({"found": written["found"]} for _ in range("found" in written))]
    lines = [
        "Some noise",
        LINE_PREFIX + "{",
        LINE_PREFIX + "[" * 100000,
        *(LINE_PREFIX + json.dumps(one) for one in said),
    ]
    return parse_deep_result(lines, DeepCheckResult("gloo", names, len(names), **trouble))


def wire_of(case: Mapping[str, Any]) -> MeshResult | None:
    """Give the proof on the wire of a case: all ways are open but for `ways`, by `caller>peer` or `caller>*`."""
    written = case.get("wire")
    if written is None:
        return None
    names = tuple(node.name for node in nodes(case) if node.name not in written.get("out", ()))
    calls = plan_neighbours(names)
    ends: list[tuple[str, str, str]] = [
        (caller, peer, MESH) for caller, peers in calls.items() for peer in peers
    ]
    ends += [(name, names[0], MASTER) for name in names[1:]]
    ways = [_way(written.get("ways", {}), *each) for each in ends]
    for rail, changes in written.get("rails", {}).items():
        ways += [_way(changes, *each).replace(rail=rail) for each in ends if each[2] == MESH]
    return MeshResult(
        nodes=names,
        paths=tuple(ways),
        absent=written.get("absent", {}),
        master_port=20003,
        seconds=0.3,
        ports_taken=written.get("taken", ""),
    )


def _way(changes: Mapping[str, Mapping[str, Any]], caller: str, peer: str, door: str) -> MeshPath:
    ip = f"10.0.0.{caller[3:]}"
    values: dict[str, Any] = {
        "step": "done",
        "connect": 0.0002,
        "seconds": 0.004,
        "least_rtt": 100,
        "own": ip,
        "seen": ip,
    }
    values |= {"mss": 8948, "got": 262144, "acked": 262300} if door == MESH else {"mss": 8948}
    for pattern, change_of in changes.items():
        one, other = pattern.removeprefix("master:").split(">")
        if (
            pattern.startswith("master:") == (door == MASTER)
            and one in ("*", caller)
            and other in ("*", peer)
        ):
            values |= change_of
    return MeshPath(caller=caller, peer=peer, listener=door, **values)


def _failure(written: Mapping[str, Any]) -> errors.ClusterctlError:
    kind: type[errors.ClusterctlError] = getattr(errors, written["is"])
    evidence = written.get("evidence", "")
    if "case" in written:
        return kind(written["code"], written["case"], evidence=evidence, **written.get("facts", {}))
    error = kind(written["code"], REPORTED, evidence=evidence, message=written["message"])
    error.fix = written.get("fix", "")
    return error


FAMILIES = sorted(path.stem for path in HERE.glob("*.yaml") if path.stem != "healthy")


def every_case() -> list[dict[str, Any]]:
    """Give all cases."""
    return [case for family in FAMILIES for case in read_cases(family)]
