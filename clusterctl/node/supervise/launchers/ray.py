"""The program of a node under `launcher: ray`: a Ray of the run's own on all nodes, and the job's program on node 0.

    node 0    ray start --head, in a session of its own; waits until Ray has all nodes and GPUs; then the job's
              program with RAY_ADDRESS, whose end is the end of the run
    others    wait until node 0's Ray can be reached; then ray start --address

`ray stop` is never called: it ends everybody's Ray. Each node takes a block of ports for its Ray and keeps the first
of them bound, so that two runs on a node never take the same ones; of the rest Ray's workers get what is free.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ....protocol.untrusted import MalformedError, parse_object
from ...runtime.ports import bind_port, candidates, ephemeral_range
from .order import exit_as, read_stdin, report

if TYPE_CHECKING:
    from typing import TypedDict

    from ....protocol.messages.local import RayNodeOrder

    class RayEntry(TypedDict, total=False):
        """A node as `ray.nodes()` gives it; more keys are not read."""

        Alive: bool
        NodeManagerAddress: str
        Resources: Dict[str, float]


FIRST_WITH_TOKENS = (2, 52)
START_LOG = "ray.log"  # in the attempt's directory
JOIN_LIMIT = 300.0  # seconds for all nodes to come; importing Ray from a network disk is slow
STOP_LIMIT = 5.0  # seconds for Ray's processes between SIGTERM and SIGKILL
CONNECT_LIMIT = 1.0
INTERVAL = 0.1
TAIL = 12  # lines
TAIL_BYTES = 64 << 10  # of what `ray start` has printed, which may be much
MAX_NODES = 4096
MIN_BLOCK = 64  # ports
BLOCK = 4  # times what Ray needs at least: it starts a worker for each CPU, and one for each actor
NODE_PORTS = (
    "node-manager-port",
    "object-manager-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)
RAY = ("-m", "ray.scripts.scripts")  # what the program `ray` runs; it may not be on the PATH


def main(arguments: List[str]) -> None:
    """Run this node's part, or with `--watch` print which nodes Ray has."""
    if arguments:
        print_nodes(arguments[1])
        return
    order: RayNodeOrder = json.loads(read_stdin())
    if importlib.util.find_spec("ray") is None:
        fail(
            "{0} has no package ray: `{0} -m pip install ray`, or `setup:` in the job".format(sys.executable)
        )
    block = reserve_ports(order)
    prepare_environment(order)
    require_token(order)
    program = Servant(order, block) if order["node_rank"] else Head(order, block)
    sys.exit(exit_as(program.run()))


def fail(text: str) -> None:
    """End with a message on stderr, which is the rank's."""
    sys.exit("clusterctl: %s" % text)


def prepare_environment(order: RayNodeOrder) -> None:
    """Set what holds for Ray and the program alike: workers import the job's code, whose path differs by node."""
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), path)))
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.setdefault("VLLM_HOST_IP", order["address"])
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    # A worker node looks for the head's raylet this often, every 2 s; 20 times are too few where Ray starts slowly.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(int(JOIN_LIMIT / 2)))


def require_token(order: RayNodeOrder) -> None:
    """Make Ray refuse everyone who does not have the run's token: it lets who reaches its ports run code.

    What the job sets stays, and a Ray that has no tokens yet is open.
    """
    if "RAY_AUTH_MODE" in os.environ or ray_version() < FIRST_WITH_TOKENS:
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ.setdefault("RAY_AUTH_TOKEN_PATH", write_token(order["temp_dir"], order["token"]))


def ray_version() -> Tuple[int, int]:
    """Read the first two numbers of Ray's version; zeros for one that is not an installed package."""
    try:
        found = re.match(r"(\d+)\.(\d+)", metadata.version("ray"))
    except metadata.PackageNotFoundError:
        return 0, 0
    return (int(found[1]), int(found[2])) if found else (0, 0)


def write_token(temp_dir: str, token: str) -> str:
    """Write it beside Ray's directory, which is open to every account; another node of the run may write the same."""
    path = os.path.join(os.path.dirname(temp_dir), "token")
    new = "%s.%s" % (path, os.urandom(8).hex())  # nodes may share /tmp and not the numbers of processes
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as sink:
        sink.write(token)
    os.replace(new, path)
    return path


# ---- ports ----


class Block(NamedTuple):
    """Ports for one Ray on this node; `holder` keeps the block, closing it gives it back."""

    holder: socket.socket
    free: List[int]


def reserve_ports(order: RayNodeOrder) -> Block:
    """Take a block of ports that no other run's Ray takes on this node."""
    needed = order["own_ports"] + (os.cpu_count() or 1)
    allowed = list(candidates(order["ports"], ephemeral_range(), 0.0))
    size = max(1, min(len(allowed), max(MIN_BLOCK, BLOCK * needed)))
    taken = int(order["head"].rpartition(":")[2])
    starts = range(0, len(allowed) - size + 1, size)
    first = os.urandom(1)[0] * len(starts) >> 8
    for start in (*starts[first:], *starts[:first]):
        ports = [port for port in allowed[start : start + size] if port != taken]
        holder = bind_port(ports[0])
        if holder is not None:
            free = [port for port in ports[1:] if is_free(port)]
            if len(free) >= needed - 1:
                return Block(holder, free)
            holder.close()
    where = "of `ports: %s-%s`" % tuple(order["ports"]) if order["ports"] else "outside the ephemeral range"
    fail("no %d free ports %s for Ray on this node" % (needed, where))
    raise AssertionError


def is_free(port: int) -> bool:
    """Whether a port can be bound now."""
    holder = bind_port(port)
    if holder is not None:
        holder.close()
    return holder is not None


# ---- ray start ----


def start_command(order: RayNodeOrder, free: Sequence[int], *, head: bool) -> List[str]:
    """Return the command line of `ray start`."""
    ports = list(free)
    named = [(name, ports.pop(0)) for name in NODE_PORTS]
    if head:
        named.append(("dashboard-port", ports.pop(0)))
        if (
            importlib.util.find_spec("grpc") is not None
        ):  # else Ray refuses this option; with it the default is 10001
            named.append(("ray-client-server-port", ports.pop(0)))
        own = ["--head", "--port=%s" % order["head"].rpartition(":")[2]]
    else:
        own = ["--address=%s" % order["head"]]
    words = [sys.executable, *RAY, "start", *own, "--node-ip-address=%s" % order["address"]]
    words += ["--%s=%d" % pair for pair in named]
    words += ["--worker-port-list=%s" % ",".join(map(str, ports)), "--temp-dir=%s" % order["temp_dir"]]
    words += [] if order["gpus"] is None else ["--num-gpus=%d" % order["gpus"]]
    return [*words, "--block"]


def open_start_log(order: RayNodeOrder) -> int:
    """Open the file that takes what `ray start` prints."""
    path = os.path.join(order["attempt"], START_LOG)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def can_connect(address: str, port: int) -> bool:
    """Whether anything accepts connections there."""
    try:
        socket.create_connection((address, port), CONNECT_LIMIT).close()
    except OSError:
        return False
    return True


# ---- the two kinds of nodes ----


def start_ray(order: RayNodeOrder, free: Sequence[int], *, head: bool) -> subprocess.Popen[bytes]:
    """Start it in a session of its own: SIGTERM to the program's is not for Ray, which the program may still need."""
    log = open_start_log(order)
    words = start_command(order, free, head=head)
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    os.close(log)
    return process


class RayNodeProgram(ABC):
    """What both kinds of nodes have: Ray's processes, and SIGTERM, after which they are ended."""

    def __init__(self, order: RayNodeOrder, block: Block) -> None:
        self._order = order
        self._block = block  # kept as long as this is
        self._stopping = False
        self._started = time.monotonic()
        self._ray: Optional[subprocess.Popen[bytes]] = None
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, *_: object) -> None:
        self._stopping = True

    @property
    def _overdue(self) -> bool:
        return time.monotonic() - self._started > JOIN_LIMIT

    def _name_of(self, address: str) -> str:
        return "%s (%s)" % (self._order["names"].get(address, "node"), address)

    def run(self) -> int:
        """Return how this node's part ended, as `Popen.returncode`."""
        try:
            return self._run()
        finally:
            if self._ray is not None:
                stop_group(self._ray)

    @abstractmethod
    def _run(self) -> int:
        """Carry out this node's part; gives how it ended, as `Popen.returncode`."""

    def _report_lost_ray(self, what: str) -> bool:
        """Return that Ray has ended on this node, with what it printed last; always False."""
        path = os.path.join(self._order["attempt"], START_LOG)
        with open(path, "rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - TAIL_BYTES))
            printed = source.read(TAIL_BYTES).decode("utf-8", "replace")
        lines = [line for line in printed.splitlines() if line.strip() and "[state-dump]" not in line]
        text = "clusterctl: Ray %s on %s" % (what, self._name_of(self._order["address"]))
        report("\n".join([*lines[-TAIL:], text]), prefix="")
        return False


class Servant(RayNodeProgram):
    """A node that gives its processors and GPUs to node 0's Ray."""

    def _run(self) -> int:
        address, _, port = self._order["head"].rpartition(":")
        while not can_connect(address, int(port)):
            if self._overdue:
                report(
                    "Ray of %s:%s cannot be reached after %d s" % (self._name_of(address), port, JOIN_LIMIT)
                )
                return 1
            if self._stopping:
                return -signal.SIGTERM
            time.sleep(INTERVAL)
        self._ray = start_ray(self._order, self._block.free, head=False)
        while self._ray.poll() is None:
            if self._stopping:
                return -signal.SIGTERM
            time.sleep(INTERVAL)
        self._report_lost_ray("ended with exit code %s" % self._ray.returncode)
        return 1


class Head(RayNodeProgram):
    """Ray's head, and the job's program, which gets SIGTERM with this process's group; Ray is ended after it."""

    def _run(self) -> int:
        """Return how the program ended; 1 if it was not started, or Ray ended before it."""
        self._ray = start_ray(self._order, self._block.free, head=True)
        if self._wait_for_nodes():
            return self._run_program()
        return -signal.SIGTERM if self._stopping else 1

    def _wait_for_nodes(self) -> bool:
        """Wait until Ray has the run's nodes and GPUs."""
        assert self._ray is not None
        watch = NodeWatch(self._order)
        try:
            while not self._stopping:
                nodes = watch.poll()
                if is_complete(nodes, self._order):
                    self._report_nodes(nodes)
                    return True
                if self._ray.poll() is not None:
                    return self._report_lost_ray("did not start")
                if self._overdue:
                    return self._report_incomplete(nodes)
                time.sleep(INTERVAL)
            return False
        finally:
            watch.close()

    def _report_nodes(self, nodes: RayNodes) -> None:
        gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
        facts = (len(nodes), cpus, gpus, time.monotonic() - self._started)
        print("clusterctl: Ray has %d nodes, %g CPUs and %g GPUs after %.1f s" % facts, flush=True)

    def _report_incomplete(self, nodes: RayNodes) -> bool:
        present = {node.address for node in nodes}
        missing = [self._name_of(address) for address in self._order["names"] if address not in present]
        facts = (JOIN_LIMIT, len(nodes), self._order["nodes"], sum(node.gpus for node in nodes))
        text = "after %d s Ray has %d of %d nodes and %g GPUs" % facts
        report("%s; missing: %s" % (text, ", ".join(missing)) if missing else text)
        return False

    def _run_program(self) -> int:
        assert self._ray is not None
        words = self._order["argv"]
        try:
            program = subprocess.Popen(words, env={**os.environ, "RAY_ADDRESS": self._order["head"]})
        except OSError as error:
            report("cannot start %s: %s" % (words[0], error))
            return 127
        while program.poll() is None:
            if self._ray.poll() is not None and not self._stopping:
                self._report_lost_ray("ended before the program: exit code %s" % self._ray.returncode)
                stop_process(program)
                return 1
            time.sleep(INTERVAL)
        return program.returncode


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_group(leader: subprocess.Popen[bytes]) -> None:
    """SIGTERM to a session of its own, then SIGKILL; what leaves its group is ended by the agent."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)
        with suppress(subprocess.TimeoutExpired):
            leader.wait(STOP_LIMIT)


# ---- which nodes Ray has ----


class RayNode(NamedTuple):
    """A node that Ray has."""

    address: str
    cpus: float
    gpus: float


RayNodes = Tuple[RayNode, ...]


def is_complete(nodes: RayNodes, order: RayNodeOrder) -> bool:
    """Whether all nodes are there, with their GPUs."""
    return len(nodes) >= order["nodes"] and sum(node.gpus for node in nodes) >= (order["all_gpus"] or 0)


class NodeWatch:
    """A process that asks Ray for its nodes again and again: Ray may end a process that uses it."""

    def __init__(self, order: RayNodeOrder) -> None:
        self._order, self._head = order, order["head"]
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._answers = b""
        self._nodes: RayNodes = ()

    def poll(self) -> RayNodes:
        """Return the nodes of the last answer."""
        address, _, port = self._head.rpartition(":")
        if self._process is None or self._process.poll() is not None:
            if can_connect(address, int(port)):
                self.close()
                self._process = self._start()
            return self._nodes
        assert self._process.stdout is not None
        with suppress(BlockingIOError):
            self._answers += os.read(self._process.stdout.fileno(), 1 << 16)
        *lines, self._answers = self._answers.split(b"\n")
        if lines:
            self._nodes = parse_nodes(lines[-1])
        return self._nodes

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, sys.argv[0], "ray", "--watch", self._head]
        log = open_start_log(self._order)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        os.close(log)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def parse_nodes(line: bytes) -> RayNodes:
    """Read one answer; the process that gives it runs code of the job's environment."""
    try:
        entries = parse_object(line).records("nodes", MAX_NODES)
    except MalformedError:
        return ()
    return tuple(
        RayNode(entry.text("address", 64), entry.number("cpus", 0) or 0.0, entry.number("gpus", 0) or 0.0)
        for entry in entries
    )


def print_nodes(head: str) -> None:
    """Connect to Ray, and print its nodes whenever they have changed; ends by being killed."""
    import ray  # type: ignore[import-not-found, unused-ignore]  # of the job's environment

    answers = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is no answer
    ray.init(address=head, log_to_driver=False)
    last: List[Dict[str, Any]] = []
    while True:
        entries: List[RayEntry] = ray.nodes()
        alive = [node for node in entries if node.get("Alive")]
        nodes = sorted((describe_node(node) for node in alive), key=str)
        if nodes != last:
            os.write(answers, json.dumps({"nodes": nodes}).encode("utf-8") + b"\n")
            last = nodes
        time.sleep(INTERVAL)


def describe_node(node: RayEntry) -> Dict[str, Any]:
    """Return address, CPUs and GPUs of a node as Ray describes it."""
    resources = node.get("Resources") or {}
    return {
        "address": node.get("NodeManagerAddress"),
        "cpus": resources.get("CPU", 0),
        "gpus": resources.get("GPU", 0),
    }
