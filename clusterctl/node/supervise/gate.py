"""The gate, which is the job's interpreter: imports torch, reports ready, waits for GO, becomes torchrun.

Without a module of torch to run, there is nothing to import: on GO it starts the node's only process.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

from ...protocol.exit_status import split_status
from ...protocol.ranks import Rank
from ...protocol.run_paths import ERROR_FILE, STDERR_LOG, STDOUT_LOG
from ..runtime.children import open_output, start_child
from ..runtime.reports import write_report

if TYPE_CHECKING:
    from ...protocol.messages.local import (
        GateOrder,
        GateRun,
        GateStart,
        MpiNodeOrder,
        NodeProgram,
        RayNodeOrder,
        StartedWorker,
    )
    from ..fork.worker import Command
    from ..fork.worker_server import Server


T = TypeVar("T")


def main(arguments: List[str]) -> None:
    """Run the gate on its two pipes: GO comes on the first, reports go out on the second."""
    go, report, module = int(arguments[0]), int(arguments[1]), arguments[2]
    start = json.loads(arguments[3]) if arguments[3:] else None
    for descriptor in (go, report):
        os.set_inheritable(descriptor, False)
    if module:
        run_module(go, report, module, start)
    else:
        run_program(go, report, start)


def run_module(go: int, report: int, name: str, start: Optional[GateStart]) -> None:
    """Import torchrun, or torch's older way to call it, and become it on GO; `start` asks for forked workers.

    A forked worker begins here as well: what its script raises must meet no handler on its way out.
    """
    sys.path[:] = [entry for entry in sys.path if entry != sys.argv[0]]  # torch must not find our modules
    gc.disable()  # a tenth of the import is the search for garbage in it, of which there is none
    forked: Union[Server, Command, str] = ""
    if start is not None:
        from ..fork import worker

        forked = prepare_fork(go, report, name, start)
        if isinstance(forked, worker.Command):
            worker.run_command(forked)
            return
    module = report_failure(report, lambda: import_module(name))
    gc.freeze()
    gc.enable()
    write_report(report, {"ready": str(sys.modules["torch"].__version__)})
    order = read_order(go)
    os.close(go)
    apply_order(order)
    watch_workers(report)
    if start is not None:
        install_fork(report, forked)
    argv = [native(word) for word in order["argv"]]
    sys.argv = [str(module.__file__), *argv]
    module.main(argv)


def report_failure(report: int, work: Callable[[], T]) -> T:
    """Do what may raise whatever torch raises at its import; the traceback is reported."""
    try:
        return work()
    except BaseException:
        import traceback

        write_report(report, {"failed": traceback.format_exc()})
        raise


def prepare_fork(go: int, report: int, name: str, start: GateStart) -> Union[Server, Command, str]:
    """Import what workers need and fork the worker server; see `fork_server` for what is returned."""
    from ..fork.worker_server import fork_server, import_torch

    obstacle = report_failure(report, lambda: import_torch(name, start, start["workers"]))
    if start.get("waits"):
        await_run(go, report, start, obstacle)
    return obstacle or fork_server(start["workers"], (go, report))


def await_run(go: int, report: int, start: GateStart, obstacle: str) -> None:
    """Wait for the run of a gate that was started before it; where that would import something else, exec its gate."""
    from ..fork.imports import TORCHRUN, record_imports
    from ..fork.worker_server import freeze_imports

    if obstacle and not select.select([go], [], [], 0)[0]:
        os.close(go)  # a run that comes now sees that, and starts a gate
        sys.exit(obstacle)
    made = record_imports(sys.argv[0], start)
    freeze_imports()
    write_report(report, {"waits": str(sys.modules["torch"].__version__)})
    order: GateRun = read_line(go)
    env = {native(key): native(value) for key, value in order["env"].items()}
    log = open_output(native(order["log"]))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(native(order["cwd"]))
    argv = [native(word) for word in order["argv"]]
    difference = obstacle or made.find_difference(argv[0], argv[1], env, order["start"])
    write_report(report, {"warm": "exec" if difference else "fork", "text": difference})
    if difference:
        for descriptor in (go, report):
            os.set_inheritable(descriptor, True)
        words = ["gate", str(go), str(report), TORCHRUN, json.dumps(order["start"])]
        os.execve(argv[0], [*argv, *words], env)
    os.environ.clear()
    os.environ.update(env)


def install_fork(report: int, forked: Union[Server, Command, str]) -> None:
    """Make torchrun fork its workers, or report why it starts them with a new interpreter."""
    from ..fork.worker_server import Server, fork_workers

    on_start = functools.partial(report_start, report)
    reason = fork_workers(forked, on_start) if isinstance(forked, Server) else str(forked)
    if reason:
        on_start("exec", reason)


def report_start(report: int, method: str, text: str) -> None:
    """Report how the workers are started; where they could not be forked, torchrun's log has the reason, too."""
    write_report(report, {"start": method, "text": text})
    if text:
        print(f"workers are not forked: {text}", file=sys.stderr)


def run_program(go: int, report: int, start: Optional[GateStart]) -> None:
    """Start the job's own program on GO, report it as this node's worker, and end as it does."""

    write_report(report, {"ready": ""})
    order = read_order(go)
    os.close(go)
    apply_order(order)
    if start is not None:
        report_start(report, "exec", "the launcher is not torchrun")
    argv, stdin = plan_program(order)
    program = Program(argv, os.path.join(order["attempt"], "0"), stdin)
    rank = order["node_rank"]
    worker: StartedWorker = {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": None,
        "TORCHELASTIC_ERROR_FILE": program.error_file,
        "pid": program.pid,
        "starttime": read_starttime(program.pid),
    }
    write_report(report, {"worker": worker})
    code = program.wait()
    write_report(report, {"ended": {"rank": Rank(rank), "code": code}})
    program.wait_for_session()
    sys.exit(code if code >= 0 else 128 - code)


def plan_program(order: GateOrder) -> Tuple[List[str], bytes]:
    """Return command line and stdin of the node's program: the job's, or ours that starts it by Ray or by mpirun.

    Ours reads its order from stdin: other accounts can read a command line, and no word of it is above 128 KiB.
    """
    argv = [native(word) for word in order["argv"]]
    own: NodeProgram = {"argv": argv, "attempt": order["attempt"], "node_rank": order["node_rank"]}
    if "ray" in order:
        ray: RayNodeOrder = {**order["ray"], **own}
        return [sys.executable, sys.argv[0], "ray"], json.dumps(ray).encode("ascii")
    if "mpi" in order:
        mpi: MpiNodeOrder = {**order["mpi"], **own}
        return [sys.executable, sys.argv[0], "mpi"], json.dumps(mpi).encode("ascii")
    return argv, b""


def read_order(go: int) -> GateOrder:
    """Wait for GO."""
    order: GateOrder = read_line(go)
    return order


def read_line(go: int) -> Any:
    """Wait for a line of JSON; the agent's end before it ends the gate."""
    content = b""
    while not content.endswith(b"\n"):
        chunk = os.read(go, 1 << 16)
        if not chunk:
            sys.exit("no GO: the agent is gone")
        content += chunk
    return json.loads(content.decode("utf-8"))


def apply_order(order: GateOrder) -> None:
    """Go to the code and set what was not known before."""
    os.chdir(order["cwd"])
    os.environ.update({native(key): native(value) for key, value in order["env"].items()})


def native(text: str) -> str:
    """Return the text that reaches a child process as the bytes meant, whatever encoding the locale has."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def watch_workers(report: int) -> None:
    """Report every worker that torchrun starts, and how it ended at the moment torchrun learns it.

    Only the parent has both for certain: a worker may be gone before anybody else has looked at it.
    """
    ranks: Dict[int, Rank] = {}

    def on_start(process: Any, env: Any) -> None:
        if env and "LOCAL_RANK" in env:
            ranks[process.pid] = Rank(int(env["RANK"]))
            worker: StartedWorker = {
                "RANK": env["RANK"],
                "LOCAL_RANK": env["LOCAL_RANK"],
                "WORLD_SIZE": env.get("WORLD_SIZE"),
                "TORCHELASTIC_ERROR_FILE": env.get("TORCHELASTIC_ERROR_FILE"),
                "pid": process.pid,
                "starttime": read_starttime(process.pid),
            }
            write_report(report, {"worker": worker})

    def on_poll(process: Any) -> None:
        if process.returncode is not None and process.pid in ranks:
            write_report(report, {"ended": {"rank": ranks.pop(process.pid), "code": process.returncode}})

    hook_popen(on_start, on_poll)


def hook_popen(on_start: Callable[[Any, Any], None], on_poll: Callable[[Any], None]) -> None:
    """Call back after each start of a process and after each look at one.

    The class is changed and not its name in the module, because torch has taken the class already.
    """
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def reported_start(self: Any, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        on_start(self, options.get("env"))  # type: ignore[record-key]  # of Popen

    setattr(subprocess.Popen, start.__name__, reported_start)
    for method in (subprocess.Popen.poll, subprocess.Popen.wait):
        setattr(subprocess.Popen, method.__name__, call_after(method, on_poll))


def call_after(method: Callable[..., Any], callback: Callable[[Any], None]) -> Callable[..., Any]:
    """Call `callback` after a method, whether it returns or raises."""

    @functools.wraps(method)
    def reporting_method(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        finally:
            callback(self)

    return reporting_method


def read_starttime(pid: int) -> int:
    """Read when a child that is not reaped was started, in clock ticks since boot: field 22 of proc_pid_stat(5)."""
    with open(f"/proc/{pid}/stat", "rb") as source:
        return int(source.read().rpartition(b")")[2].split()[19])


POLL_INTERVAL = 0.02


class Program:
    """A program in a session of its own, its output in files, as torchrun starts a worker."""

    def __init__(self, argv: List[str], folder: str, stdin: bytes = b"") -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        self.error_file = os.path.join(folder, ERROR_FILE)
        self._terminating = False
        signal.signal(signal.SIGTERM, lambda *_: self.terminate())
        pipe = os.pipe() if stdin else None
        out, err = os.path.join(folder, STDOUT_LOG), os.path.join(folder, STDERR_LOG)
        self.pid = start_child(argv, None, (out, err), stdin=pipe[0] if pipe else None)
        if pipe:
            os.close(pipe[0])
            with suppress(OSError), open(pipe[1], "wb") as sink:
                sink.write(stdin)

    def terminate(self) -> None:
        """Pass SIGTERM on to the whole session: a shell alone would die and leave what it waits for."""
        self._terminating = True
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end; returns it as `Popen.returncode`."""
        code, number = split_status(os.waitpid(self.pid, 0)[1])
        return -number if number is not None else code or 0

    def wait_for_session(self) -> None:
        """After SIGTERM give the others of the session their time too; the agent ends them at the end of grace."""
        while self._terminating and is_group_alive(self.pid):
            time.sleep(POLL_INTERVAL)


def is_group_alive(group: int) -> bool:
    """Whether a process group has a member left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
