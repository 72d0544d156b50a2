"""What the tasks of a job do together before any agent starts: find each other, and check their nodes.

    all             hello, member         who is here, and where each trains
    all             facts                 what this node is and has
    node 0          checked               what the check found, and whether anything may start

Facts come from a process of its own, which sees the packages that a worker would see; the task itself runs without
them. What judges is the client's own code, see client/rpc/bundle.py.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from ...protocol.untrusted import MalformedError, Untrusted, parse_json
from ..probe.network import addresses
from ..state.workdir import make_below, make_private, write_new
from .job_files import MAX_FILE, JobFiles, list_folder, read_object, write_object
from .spec import (
    Addresses,
    Member,
    SlurmError,
    choose_network,
    choose_peer_addresses,
    count_workers,
    parse_addresses,
    parse_member,
)

if TYPE_CHECKING:
    from ...protocol.messages.allocation import CheckPart, CheckReport, JudgedNode, JudgeRequest
    from ...protocol.messages.verbs import FullProbeRequest, SubmittedTemplate


ARRIVAL_LIMIT = 600.0  # seconds in which all tasks have begun: a prolog may take minutes on some nodes
MIN_PAUSE, MAX_PAUSE = 0.02, 0.5  # seconds between looks at the folder
PROBE_LIMIT = (
    60.0  # seconds; each question has its own limit, but Python itself may come from a cold file system
)
JUDGE_LIMIT = 60.0
BEAT_INTERVAL = 5.0  # seconds between signs of life
RETRY_PAUSES = (0.5, 2.0, 5.0)  # seconds before a message is written or read again
CHECKED = "checked"
OLDEST_JUDGE = (3, 10)
MAX_CODES = 8
FAILED = "failed"
MAX_REASON = 1000  # characters


class Task(NamedTuple):
    """Which task this is."""

    slot: int
    total: int
    node: str
    job: str
    key: str  # names this start of the job
    restarts: int = 0  # how often Slurm has requeued the job

    @classmethod
    def of(cls, variables: Any) -> Task:
        """Read the variables of the step; those of the batch script have other values under the same names."""
        restarts = variables.get("SLURM_RESTART_COUNT") or "0"
        return cls(
            int(variables["SLURM_PROCID"]),
            int(variables["SLURM_STEP_NUM_TASKS"]),
            variables["SLURMD_NODENAME"],
            variables["SLURM_JOB_ID"],
            f"{variables['SLURM_JOB_ID']}.{restarts}",
            int(restarts),
        )


class OtherFailedError(SlurmError):
    """Another task reported that its node cannot start."""


class Exchange:
    """The messages of all tasks of one start of a job: files, whose names are looked up by listing their folder.

    A network file system remembers for a while that a name was not there, but not what a folder holds.
    """

    def __init__(self, files: JobFiles, task: Task) -> None:
        self.folder = make_below(make_private(files.exchanges), task.key)
        self.task = task
        self._beat_at = float("-inf")

    def post(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a message for the others; a shared file system that fails for a moment is tried again."""
        for pause in RETRY_PAUSES:
            with suppress(OSError):
                write_object(self._path(name), value)
                return
            time.sleep(pause)
        write_object(self._path(name), value)

    def post_first(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a message unless another task has written it."""
        with suppress(FileExistsError):
            write_new(self._path(name), json.dumps(value).encode("utf-8"))

    def names(self) -> Set[str]:
        """List the messages that are there; none while the folder cannot be read."""
        return set(list_folder(self.folder))

    def read(self, name: str) -> Untrusted:
        """Read a message that is there; one that cannot be read for a moment is tried again, then it is empty."""
        for pause in RETRY_PAUSES:
            found = read_object(self._path(name))
            if found:
                return found
            time.sleep(pause)
        return read_object(self._path(name))

    def beat(self) -> None:
        """Write a sign of life when one is due."""
        path, now = self._path(f"alive.{self.task.slot}"), time.monotonic()
        if now - self._beat_at > BEAT_INTERVAL:
            self._beat_at = now
            with suppress(OSError), open(path, "ab"):
                os.utime(path)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def check(self, names: List[str]) -> bool:
        """Whether all these messages are there; OtherFailedError if another task has failed."""
        present = self.names()
        if FAILED in present:
            failure = self.read(FAILED)
            raise OtherFailedError(f"{failure.text('node', 128)}: {failure.text('text', MAX_REASON)}")
        return present.issuperset(names)

    def wait(self, names: List[str], limit: float) -> None:
        """Wait for messages; SlurmError names what did not come."""
        for _ in pauses(limit):
            self.beat()
            if self.check(names):
                return
        missing = sorted(set(names) - self.names())
        raise SlurmError(f"no {', '.join(missing[:5])} within {limit:g} s")

    def all_of(self, kind: str) -> List[str]:
        """Name a message of every task."""
        return [f"{kind}.{slot}" for slot in range(self.task.total)]


def pauses(limit: float) -> Iterator[None]:
    """Yield at once, and then after longer and longer pauses, for so many seconds."""
    deadline, pause = time.monotonic() + limit, MIN_PAUSE
    yield
    while time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(MAX_PAUSE, pause * 1.2)
        yield


def make_member(exchange: Exchange, template: SubmittedTemplate) -> Member:
    """Send the others this node's addresses, and choose where it trains."""
    task, own = exchange.task, own_addresses()
    entries = [{"nic": nic, "ip": ip, "prefix": size} for nic, listed in own.items() for ip, size in listed]
    exchange.post(f"hello.{task.slot}", {"node": task.node, "addresses": entries})
    exchange.wait(exchange.all_of("hello"), ARRIVAL_LIMIT)
    nics, network = template["nic"], template["network"]
    source = None
    if task.total > 1 and not nics and not network:
        source = find_source(own, exchange.read(f"hello.{0 if task.slot else 1}"))
    address, chosen = choose_network(own, nics, network, source)
    workers = count_workers(template["workers"], count_gpus(), len(os.sched_getaffinity(0)))
    return Member(task.slot, task.node, address, chosen, workers)


def collect_members(exchange: Exchange, own: Member) -> List[Member]:
    """Send where this node trains, and return the members of all nodes."""
    exchange.post(f"member.{own.slot}", own.as_dict())
    names = exchange.all_of("member")
    exchange.wait(names, ARRIVAL_LIMIT)
    members = [parse_member(exchange.read(name), slot) for slot, name in enumerate(names)]
    whole = [member for member in members if member is not None]
    if len(whole) < len(members) or len({member.node for member in whole}) < len(whole):
        raise SlurmError("the nodes' messages are damaged")
    return whole


def own_addresses() -> Dict[str, List[Tuple[str, int]]]:
    """List this node's IPv4 addresses by interface."""
    found = {
        name: [(entry.ip or "", entry.prefix or 0) for entry in entries if entry.family == 4]
        for name, entries in addresses().items()
    }
    return {name: entries for name, entries in found.items() if entries}


def find_source(own: Addresses, peer: Untrusted) -> str:
    """Ask the kernel from which address this node calls another one."""
    candidates = choose_peer_addresses(own, parse_addresses(peer))
    with suppress(OSError):
        resolved = socket.getaddrinfo(peer.text("node", 128), None, socket.AF_INET, socket.SOCK_DGRAM)
        names = [str(entry[4][0]) for entry in resolved]
        # Debian calls the machine itself 127.0.1.1
        candidates = [ip for ip in names if not ip.startswith("127.")] + candidates
    for address in candidates:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
    raise SlurmError(f"no route to {peer.text('node', 128)}")


def count_gpus() -> Optional[int]:
    """Count the GPUs that Slurm gave to this node."""
    number = os.environ.get("SLURM_GPUS_ON_NODE", "")
    if number.isdecimal():
        return int(number)
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        visible = os.environ.get(name)
        if visible is not None:
            return len([word for word in visible.split(",") if word.strip() and word != "NoDevFiles"])
    return len([name for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdecimal()]) or None


class CheckFailedError(SlurmError):
    """The check found errors: nothing starts on any node."""


def check_nodes(
    exchange: Exchange, template: SubmittedTemplate, members: List[Member], files: JobFiles
) -> None:
    """Take part in the check; CheckFailedError if nothing may start."""
    began = time.monotonic()
    check, own = template["check"], members[exchange.task.slot]
    report_facts(exchange, probe_request(template, members, own.slot, files.workdir), files)
    if check["only"]:
        return
    limit = PROBE_LIMIT + JUDGE_LIMIT
    if own.slot == 0:
        exchange.wait(exchange.all_of("facts"), limit)
        report = judge(exchange, check, template["judge"], members)
        report["seconds"] = time.monotonic() - began
        exchange.post(CHECKED, report)
    exchange.wait([CHECKED], 2 * limit)
    found = exchange.read(CHECKED)
    if not found:  # it may forbid the start
        raise SlurmError("what the check found cannot be read")
    if found.flag("blocks"):
        raise CheckFailedError(f"the checks failed: {describe_errors(found)}")


def describe_errors(report: Untrusted) -> str:
    """Name the errors of a check by code and nodes."""
    errors = [entry for entry in report.records("findings", 1000) if entry.text("severity") == "error"]
    counted = [entry for entry in errors if not entry.text("waived")]
    texts = [f"{entry.text('code', 40)} on {', '.join(entry.texts('nodes', 8, 128))}" for entry in counted]
    more = [f"and {len(texts) - MAX_CODES} more"] if len(texts) > MAX_CODES else []
    return "; ".join([*texts[:MAX_CODES], *more])


def report_facts(exchange: Exchange, request: FullProbeRequest, files: JobFiles) -> None:
    """Have this node's facts gathered and posted; null in their place if that does not end in time."""
    name = f"facts.{exchange.task.slot}"
    child = subprocess.Popen(
        [sys.executable, sys.argv[0], "facts", files.folder, name], stdin=subprocess.PIPE
    )
    with suppress(OSError), child.stdin as pipe:  # type: ignore[union-attr]  # it is a pipe
        pipe.write(json.dumps(request).encode("utf-8"))
    for _ in pauses(PROBE_LIMIT):
        exchange.beat()
        if child.poll() is not None:
            break
    else:
        child.kill()
    if name not in exchange.names():
        exchange.post(name, {"facts": None})


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


def judge(exchange: Exchange, check: CheckPart, program: str, members: List[Member]) -> CheckReport:
    """Have the facts of all nodes judged, by a program that needs a newer Python than an agent."""
    if sys.version_info < OLDEST_JUDGE:
        here = "%d.%d" % (sys.version_info[:2])
        skipped = f"the check needs Python {OLDEST_JUDGE[0]}.{OLDEST_JUDGE[1]} on the nodes, here is {here}"
        return {"findings": [], "blocks": False, "skipped": skipped, "seconds": 0.0}
    nodes: List[JudgedNode] = [
        {"node": one.node, "address": one.address, "nics": list(one.nics)} for one in members
    ]
    request: JudgeRequest = {"check": check, "nodes": nodes, "facts": read_all(exchange, members)}
    answer: Optional[CheckReport] = run_judge(program, json.dumps(request).encode("utf-8"))
    skipped = "the program that judges the nodes failed; see task.0.out"
    return answer or {"findings": [], "blocks": False, "skipped": skipped, "seconds": 0.0}


def read_all(exchange: Exchange, members: List[Member]) -> Dict[str, Any]:
    """Read what all tasks reported of their nodes."""
    return {one.node: exchange.read(f"facts.{one.slot}").unread("facts") for one in members}


def run_judge(program: str, request: bytes) -> Optional[Any]:
    """Run the program; None if it did not judge."""
    env = {**os.environ, "CLUSTERCTL_LANG": "en"}  # what is recorded is in English
    argv = [sys.executable, "-I", "-S", "-X", "utf8", program]
    try:
        done = subprocess.run(
            argv, input=request, stdout=subprocess.PIPE, timeout=JUDGE_LIMIT, env=env, check=False
        )
        answer = parse_json(done.stdout, MAX_FILE)
    except (OSError, subprocess.SubprocessError, MalformedError):
        return None
    return answer if done.returncode == 0 else None


def main(arguments: List[str]) -> None:
    """Gather this node's facts and post them: `facts FOLDER NAME`, with the request on stdin."""
    from ..verbs.probe import gather

    folder, name = arguments
    request: Any = parse_json(sys.stdin.buffer.read(), MAX_FILE)
    Exchange(JobFiles(folder), Task.of(os.environ)).post(name, {"facts": gather(request, time.time())})
    sys.stdout.flush()
    os._exit(0)  # a question that hangs holds up nothing
