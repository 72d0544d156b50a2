"""The program of a node under `launcher: mpirun`: Open MPI's mpirun on node 0, its daemon orted on all, without SSH.

    mpirun (node 0) -- as its rsh agent --> `mpi --relay`: writes orted's command line into a file of the attempt
    the program of node 0 reads it -------> signed, to the program of the node that is meant --> orted --> ranks

Each node's program calls node 0's at the master port; both prove that they know a key of the run. For mpirun no node
is its own, node 0 neither, so that every orted has the variables of its own node: NICs differ between nodes.
A rank is started by a script of its node, which goes to the node's copy of the code, sets RANK and the like, sends the
output to the node's log, and notes its begin and its end.

At a stop, and when a rank has failed, Open MPI would send SIGTERM a second later and SIGKILL after another. So each
node's program sends SIGTERM to its ranks itself, at once, and Open MPI is given the grace of the job for each of its
two steps. mpirun and orted are in sessions of their own, where the SIGTERM of this program's does not reach them.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Set

from ....protocol.run_paths import STDERR_LOG, STDOUT_LOG
from ....protocol.untrusted import MalformedError, Untrusted, parse_object
from ...gang.channel import SignedLines
from ...runtime.connections import ChannelError, describe_os_error, is_same_proof, make_nonce, prove
from .order import exit_as, read_stdin, report

if TYPE_CHECKING:
    from ....protocol.messages.local import MpiNodeOrder

SCRIPT = "CLUSTERCTL_MPI_RANK"  # the script that starts a rank on this node
HOST = "cc-node-"  # names that no machine has: else mpirun would start that node's ranks itself
NO_AGENT = "/bin/true"  # what orted gets: it looks whether its agent exists, and starts nothing by it
JOIN_LIMIT = 120.0  # seconds until node 0's program can be reached, and for mpirun to send a command line
CALL_LIMIT = 10.0  # seconds for one message
MAX_LINE = 64 << 10  # bytes
INTERVAL = 0.05
MAX_UNPROVEN = 64  # connections without a proof of the key, and two for each node; the oldest gives way
END_WAIT = 5.0  # seconds in which a stop explains why orted has ended
FAILURE_WAIT = 2.0  # seconds between SIGTERM and the end for the ranks of a node where one has failed
STOP_LIMIT = 5.0
ALLOCATION_PREFIXES = ("SLURM_", "SLURMD_")


def main(arguments: List[str]) -> None:
    """Run this node's part, or with `--relay FOLDER HOST WORDS` hand over what mpirun would have run by ssh."""
    if arguments:
        _, folder, host, *words = arguments
        relay(folder, host, " ".join(words))
        return
    order: MpiNodeOrder = json.loads(read_stdin())
    node = MpiNode(order)
    sys.exit(exit_as(node.run_head() if order["node_rank"] == 0 else node.run_servant()))


def relay(folder: str, host: str, words: str) -> None:
    """Write one command line where node 0's program looks for it, at once and whole."""
    path = os.path.join(folder, host)
    with open(path + ".new", "w", encoding="utf-8", errors="surrogateescape") as sink:
        sink.write(words)
    os.replace(path + ".new", path + ".orted")


class MpiNode:
    """One node's part."""

    def __init__(self, order: MpiNodeOrder) -> None:
        self._order = order
        self._key = order["key"].encode("ascii")
        self._folder = os.path.join(order["attempt"], "mpi")
        self._begun, self._ended = (os.path.join(self._folder, name) for name in ("begun", "ended"))
        self._stopping = False
        self.lines: Dict[int, str] = {}  # of orted, by node rank
        self._agent = ""
        self._orted: Optional[subprocess.Popen[bytes]] = None
        self._unproven: List[socket.socket] = []  # the oldest first
        for folder in (self._folder, order["temp_dir"]):
            os.makedirs(folder, 0o700, exist_ok=True)
        self._write_script()
        self._prepare_environment()
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, *_: object) -> None:
        self._stopping = True

    def _write_script(self) -> None:
        """Write what starts a rank here; output goes to the log of this node's program."""
        own = os.path.join(self._order["attempt"], "0")
        out, err = (os.path.join(own, name) for name in (STDOUT_LOG, STDERR_LOG))
        words = " ".join(map(shlex.quote, self._order["argv"]))
        lines = [
            "#!/bin/sh",
            "trap : TERM",  # the program itself gets it
            "cd %s || exit 1" % shlex.quote(os.getcwd()),
            "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE",
            "export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE",
            "echo $$ >>%s" % shlex.quote(self._begun),
            "exec >>%s 2>>%s" % (shlex.quote(out), shlex.quote(err)),
            words,
            "code=$?",
            'echo "$RANK $$ $code" >>%s' % shlex.quote(self._ended),
            "exit $code",
        ]
        self._write("rank.sh", "\n".join(lines) + "\n")

    def _write(self, name: str, text: str) -> str:
        path = os.path.join(self._folder, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as sink:
            sink.write(text)
        os.chmod(path, stat.S_IRWXU)
        return path

    def _prepare_environment(self) -> None:
        """Set what mpirun, orted and the ranks of this node inherit; what the job sets stays."""
        nics = ",".join(self._order["nic"])
        own = {"hwloc_base_binding_policy": "none", "orte_tmpdir_base": self._order["temp_dir"]}
        own["btl_vader_backing_directory"] = self._order["shared_memory"]
        own["odls_base_sigkill_timeout"] = str(max(1, math.ceil(self._order["grace"])))
        if nics:
            own.update(oob_tcp_if_include=nics, btl_tcp_if_include=nics)
        for name, value in own.items():
            os.environ.setdefault("OMPI_MCA_" + name, value)
        os.environ[SCRIPT] = os.path.join(self._folder, "rank.sh")
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            os.environ.setdefault(name, "1")

    # node 0

    def run_head(self) -> int:
        """Run mpirun; returns how it ended, as `Popen.returncode`."""
        address, _, port = self._order["head"].rpartition(":")
        try:
            listener = socket.create_server((address, int(port)), backlog=1024)
        except OSError as error:
            report("cannot listen on %s: %s" % (self._order["head"], describe_os_error(error)))
            return 1
        threading.Thread(target=self.serve, args=(listener,), daemon=True).start()
        try:
            environment = mpirun_environment(os.environ)
            mpirun = subprocess.Popen(self._mpirun_command(), env=environment, start_new_session=True)
        except OSError as error:
            report("cannot start mpirun: %s" % error)
            return 127
        while mpirun.poll() is None and not self._is_over():
            self._collect_lines()
            time.sleep(INTERVAL)
        if mpirun.returncode is None:
            self._stop_ranks()
            stop_daemon(mpirun, STOP_LIMIT if self._stopping else 0.0)
        self._stop_orted()
        return self.read_failure() or (-signal.SIGTERM if self._stopping else mpirun.returncode)

    def _mpirun_command(self) -> List[str]:
        slots = self._order["slots"]
        agent = '#!/bin/sh\nexec %s %s mpi --relay %s "$@"\n'
        words = (shlex.quote(word) for word in (sys.executable, sys.argv[0], self._folder))
        self._agent = self._write("rsh", agent % tuple(words))
        return [
            *("mpirun", "-np", str(sum(slots))),
            *("--host", ",".join("%s%d:%d" % (HOST, rank, count) for rank, count in enumerate(slots))),
            *("--mca", "plm", "rsh", "--mca", "plm_rsh_agent", self._agent),
            *("--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "plm_rsh_pass_environ_mca_params", "0"),
            *("sh", "-c", 'exec "$%s"' % SCRIPT),
        ]

    def _collect_lines(self) -> None:
        """Take what the relays have written; this node's own orted starts at once."""
        for rank in range(len(self._order["slots"])):
            path = os.path.join(self._folder, "%s%d.orted" % (HOST, rank))
            if rank not in self.lines and os.path.exists(path):
                with open(path, encoding="utf-8", errors="surrogateescape") as source:
                    self.lines[rank] = source.read().replace(self._agent, NO_AGENT)
                if rank == 0:
                    self._start_orted(self.lines[0])

    def serve(self, listener: socket.socket) -> None:
        """Answer every connection, for ever: other accounts may take all files or threads for a while."""
        while True:
            try:
                connection, _ = listener.accept()
                self._admit(connection)
                threading.Thread(target=self.answer, args=(connection,), daemon=True).start()
            except (OSError, RuntimeError):
                time.sleep(INTERVAL)

    def _admit(self, connection: socket.socket) -> None:
        """Bound how many have proved nothing yet: a node proves the key at once."""
        self._unproven.append(connection)
        if len(self._unproven) > MAX_UNPROVEN + 2 * len(self._order["slots"]):
            with suppress(OSError):
                self._unproven.pop(0).shutdown(socket.SHUT_RDWR)

    def _forget(self, connection: socket.socket) -> None:
        with suppress(ValueError):
            self._unproven.remove(connection)

    def answer(self, connection: socket.socket) -> None:
        """Send a node that has proved the key its command line, once mpirun has written it."""
        try:
            with suppress(OSError, MalformedError, ChannelError), connection:
                self._answer(connection)
        finally:
            self._forget(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(CALL_LIMIT)
        call = LineReader(connection)
        hello, nonce = call.read(), make_nonce()
        rank = hello.integer("node_rank", 1, len(self._order["slots"]) - 1)
        call.send({"nonce": nonce})
        proof = prove(self._key, "mpi node", rank, hello.text("nonce"), nonce)
        if rank is None or not is_same_proof(call.read().text("proof"), proof):
            return
        self._forget(connection)
        deadline = time.monotonic() + JOIN_LIMIT
        while rank not in self.lines and time.monotonic() < deadline:
            time.sleep(INTERVAL)
        lines = SignedLines(prove(self._key, "mpi head", rank, hello.text("nonce"), nonce))
        for line in lines.sign(json.dumps({"orted": self.lines[rank]})) if rank in self.lines else ():
            connection.sendall(line)

    # the other nodes

    def run_servant(self) -> int:
        """Run orted; returns how this node's part ended."""
        line = self._wait_for_line()
        if line is None:
            return -signal.SIGTERM if self._stopping else 1
        self._start_orted(line)
        assert self._orted is not None
        while self._orted.poll() is None and not self._is_over():
            time.sleep(INTERVAL)
        failure = self.read_failure()
        deadline = time.monotonic() + END_WAIT
        while not (failure or self._stopping or self._orted.returncode in (None, 0)):
            if time.monotonic() > deadline or self._orted.returncode < 0:
                report("orted on %s ended: %s" % (self._order["node"], self._orted.returncode))
                return 1
            time.sleep(INTERVAL)
        self._stop_ranks()
        self._stop_orted()
        return failure or (-signal.SIGTERM if self._stopping else 0)

    def _wait_for_line(self) -> Optional[str]:
        """Wait for the command line of this node's orted."""
        address, _, port = self._order["head"].rpartition(":")
        began, problem = time.monotonic(), ""
        while time.monotonic() - began < JOIN_LIMIT and not self._stopping:
            try:
                with socket.create_connection((address, int(port)), CALL_LIMIT) as connection:
                    connection.settimeout(JOIN_LIMIT)
                    return self.call_head(LineReader(connection))
            except (MalformedError, ChannelError) as error:  # a refused connection after it is no news
                problem = str(error)
            except OSError as error:
                problem = problem or describe_os_error(error)
            time.sleep(INTERVAL)
        if not self._stopping:  # else another node's failure is why there is none
            facts = (self._order["head"], time.monotonic() - began, problem)
            report("no command line from mpirun on node 0 (%s) in %.0f s: %s" % facts)
        return None

    def call_head(self, call: LineReader) -> str:
        """Prove the key, and take the command line of this node's orted."""
        rank, nonce = self._order["node_rank"], make_nonce()
        call.send({"node_rank": rank, "nonce": nonce})
        theirs = call.read().text("nonce")
        call.send({"proof": prove(self._key, "mpi node", rank, nonce, theirs)})
        lines = SignedLines(prove(self._key, "mpi head", rank, nonce, theirs))
        message = None
        while message is None:
            message = lines.verify(call.read_line())
        return message.text("orted", MAX_LINE)

    # all nodes

    def _start_orted(self, line: str) -> None:
        """Run what mpirun would run in a shell there, but in the foreground: it is this process's to end."""
        command = line.replace("orted --daemonize", "orted", 1)
        self._orted = subprocess.Popen(["sh", "-c", "exec " + command.strip()], start_new_session=True)

    def _stop_orted(self) -> None:
        """End it; if all is well it ends by itself."""
        if self._orted is not None:
            stop_daemon(self._orted, 0.0 if self._is_over() else STOP_LIMIT)

    def _is_over(self) -> bool:
        """Whether this node's part is to end, whatever Open MPI does."""
        return self._stopping or bool(self.read_failure())

    def _stop_ranks(self) -> None:
        """Send SIGTERM to this node's ranks, and wait for them: at a stop the agent sets how long."""
        deadline = time.monotonic() + FAILURE_WAIT
        signalled: Set[int] = set()
        while pids := self._running_ranks():
            for pid in pids - signalled:
                signal_group(pid, signal.SIGTERM)
            signalled |= pids
            if time.monotonic() > deadline and not self._stopping:
                break
            time.sleep(INTERVAL)

    def _running_ranks(self) -> Set[int]:
        """Return the process groups of the ranks: the number of one that has ended may be another process's by now."""
        begun, ended = set(read_columns(self._begun)), set(read_columns(self._ended, -2))
        return {pid for pid in map(int, begun - ended) if signal_group(pid, 0)}

    def read_failure(self) -> int:
        """Return the exit code of the first rank that failed here; 0 if none did."""
        return next((int(code) for code in read_columns(self._ended) if code != "0"), 0)


def mpirun_environment(own: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables of mpirun, to which the nodes and their slots are given.

    In an allocation of Slurm it would take the nodes from there, and find no room on ours. It passes `OMPI_MCA_` on to
    the ranks of all nodes, whose NICs differ. The ranks keep both: they inherit from their own node's orted.
    """
    return {
        name: value
        for name, value in own.items()
        if name != "OMPI_MCA_btl_tcp_if_include" and not name.startswith(ALLOCATION_PREFIXES)
    }


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to a group of ours; returns whether there is one; 0 sends nothing."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def read_columns(path: str, column: int = -1) -> List[str]:
    """Read these words, counted from the end, of the whole lines that hold a number there."""
    with suppress(OSError), open(path, encoding="ascii", errors="replace") as source:
        lines = [line.split() for line in source if line.endswith("\n")]
        return [words[column] for words in lines if len(words) >= -column and words[column].isdigit()]
    return []


def stop_daemon(process: subprocess.Popen[bytes], first_wait: float) -> None:
    """Wait a while for its end, then kill it.

    It may be asleep until its ranks' time is up, and mpirun 4.1 may crash at a late SIGTERM, with a page of output.
    """
    try:
        process.wait(first_wait)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class LineReader:
    """Messages over a connection that waits: lines of JSON, at most so long."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""

    def read_line(self) -> bytes:
        """Return the next line, without its end; ChannelError if there is none."""
        while b"\n" not in self._buffer:
            chunk = self._connection.recv(1 << 14)
            if not chunk or len(self._buffer) > MAX_LINE:
                raise ChannelError("the connection was closed")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def read(self) -> Untrusted:
        """Return the next message."""
        return parse_object(self.read_line())

    def send(self, message: Dict[str, object]) -> None:
        """Send one."""
        self._connection.sendall(json.dumps(message).encode("ascii") + b"\n")
