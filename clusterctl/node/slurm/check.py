"""The check inside the allocation: each task has its node's facts gathered, and that of node 0 has them judged.

    all             facts                 what this node is and has
    node 0          checked               what the check found, and whether anything may start

Facts come from a process of its own, which sees the packages that a worker would see; the task itself runs without
them. What judges is the client's own code, see client/rpc/bundle.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ...protocol.untrusted import MalformedError, Untrusted, parse_json
from .job_files import LARGEST_FILE, Exchange, JobFiles
from .spec import Member, SlurmError

if TYPE_CHECKING:
    from ...protocol.messages.allocation import (
        CheckPart,
        CheckReport,
        JudgedNode,
        JudgeRequest,
    )
    from ...protocol.messages.verbs import (
        FullProbeRequest,
        SubmittedTemplate,
    )
    from .board import Board

PROBE_LIMIT = (
    60.0  # seconds; each question has its own limit, but Python itself may come from a cold file system
)
JUDGE_LIMIT = 60.0
BEAT_INTERVAL = 5.0
POLL_INTERVAL = 0.05
CHECKED = "checked"
OLDEST_JUDGE = (3, 10)
MOST_CODES = 8


class CheckFailedError(SlurmError):
    """The check found errors: nothing starts on any node."""


def check_nodes(board: Board, template: SubmittedTemplate, members: List[Member], files: JobFiles) -> None:
    """Take part in the check; CheckFailedError if nothing may start."""
    began = time.monotonic()
    check, own = template["check"], members[board.task.slot]
    report_facts(board, template, members, files)
    if check["only"]:
        return
    limit = PROBE_LIMIT + JUDGE_LIMIT
    if own.slot == 0:
        board.wait(board.all_of("facts"), limit)
        report = judge(board, check, template["judge"], members)
        report["seconds"] = time.monotonic() - began
        board.exchange.post(CHECKED, report)
    board.wait([CHECKED], 2 * limit)
    found = board.exchange.read(CHECKED)
    if not found:  # it may forbid the start
        raise SlurmError("what the check found cannot be read")
    if found.flag("blocks"):
        raise CheckFailedError(f"the checks failed: {describe_errors(found)}")


def describe_errors(report: Untrusted) -> str:
    """Name the errors of a check by code and nodes."""
    errors = [entry for entry in report.records("findings", 1000) if entry.text("severity") == "error"]
    counted = [entry for entry in errors if not entry.text("waived")]
    texts = [f"{entry.text('code', 40)} on {', '.join(entry.texts('nodes', 8, 128))}" for entry in counted]
    more = [f"and {len(texts) - MOST_CODES} more"] if len(texts) > MOST_CODES else []
    return "; ".join([*texts[:MOST_CODES], *more])


def report_facts(board: Board, template: SubmittedTemplate, members: List[Member], files: JobFiles) -> None:
    """Have this node's facts gathered and posted; null in their place if that does not end in time."""
    name = f"facts.{board.task.slot}"
    request = probe_request(template, members, board.task.slot, files.workdir)
    argv = [sys.executable, sys.argv[0], "facts", files.folder, board.task.key, name]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE)
    with suppress(OSError), child.stdin as pipe:  # type: ignore[union-attr]  # it is a pipe
        pipe.write(json.dumps(request).encode("utf-8"))
    deadline, beat = time.monotonic() + PROBE_LIMIT, 0.0
    while child.poll() is None and time.monotonic() < deadline:
        if time.monotonic() - beat > BEAT_INTERVAL:
            beat = time.monotonic()
            board.exchange.touch(f"alive.{board.task.slot}")
        time.sleep(POLL_INTERVAL)
    if child.poll() is None:
        child.kill()
    if name not in board.exchange.names():
        board.exchange.post(name, {"facts": None})


def probe_request(
    template: SubmittedTemplate, members: List[Member], slot: int, workdir: str
) -> FullProbeRequest:
    """Ask this node what `check` asks over SSH; of the routes those to node 0 and to the next node."""
    own, count = members[slot], len(members)
    others = {members[place % count] for place in (0, slot - 1, slot + 1)} - {own}
    return {
        "node": own.node,
        "workdir": workdir,
        "host": own.node,
        "ip": own.address,
        "nic": list(own.nics),
        "network": template["network"],
        "peers": {other.node: other.address for other in others},
        "payload": os.path.basename(os.path.dirname(sys.argv[0])),
        "setup": template["check"]["setup"],
    }


def judge(board: Board, check: CheckPart, program: str, members: List[Member]) -> CheckReport:
    """Have the facts of all nodes judged, by a program that needs a newer Python than an agent."""
    if sys.version_info < OLDEST_JUDGE:
        here = "%d.%d" % (sys.version_info[:2])
        skipped = f"the check needs Python {OLDEST_JUDGE[0]}.{OLDEST_JUDGE[1]} on the nodes, here is {here}"
        return {"findings": [], "blocks": False, "skipped": skipped, "seconds": 0.0}
    nodes: List[JudgedNode] = [
        {"node": one.node, "address": one.address, "nics": list(one.nics)} for one in members
    ]
    request: JudgeRequest = {"check": check, "nodes": nodes, "facts": read_all(board, members)}
    answer: Optional[CheckReport] = run_judge(program, json.dumps(request).encode("utf-8"))
    skipped = "the program that judges the nodes failed; see task.0.out"
    return answer or {"findings": [], "blocks": False, "skipped": skipped, "seconds": 0.0}


def read_all(board: Board, members: List[Member]) -> Dict[str, Any]:
    """Read what all tasks reported of their nodes."""
    return {one.node: board.exchange.read(f"facts.{one.slot}").unread("facts") for one in members}


def run_judge(program: str, request: bytes) -> Optional[Any]:
    """Run the program; None if it did not judge."""
    env = {**os.environ, "CLUSTERCTL_LANG": "en"}  # what is recorded is in English
    argv = [sys.executable, "-I", "-S", "-X", "utf8", program]
    try:
        done = subprocess.run(
            argv, input=request, stdout=subprocess.PIPE, timeout=JUDGE_LIMIT, env=env, check=False
        )
        answer = parse_json(done.stdout, LARGEST_FILE)
    except (OSError, subprocess.SubprocessError, MalformedError):
        return None
    return answer if done.returncode == 0 else None


def main(arguments: List[str]) -> None:
    """Gather this node's facts and post them: `facts FOLDER START NAME`, with the request on stdin."""
    from ..verbs.probe import gather

    folder, key, name = arguments
    request: Any = parse_json(sys.stdin.buffer.read(), LARGEST_FILE)
    Exchange(JobFiles(folder), key).post(name, {"facts": gather(request, time.time())})
    sys.stdout.flush()
    os._exit(0)  # a question that hangs holds up nothing
