"""PID 1 of a node, its file system."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from clusterctl.lab.layout import (
    DEFAULT_PATH,
    LabAccount,
    LabNodePlan,
    LabPlan,
    render_addresses,
    render_hosts,
    render_slurm_conf,
    render_sshd_config,
)
from clusterctl.lab.linux import (
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    bind,
    enter_user_namespace,
    mount_new,
    set_process_name,
    unshare,
)
from clusterctl.lab.simulated_gpus import write_smi
from clusterctl.node.runtime.processes import reap, wake_on

if TYPE_CHECKING:
    from clusterctl.lab.messages import NodeReport, NodeRequest

LAB_DIRECTORY = "/run/lab"
SLURM_DIRECTORY = f"{LAB_DIRECTORY}/slurm"
SLURM_CONF = f"{LAB_DIRECTORY}/slurm.conf"
_COVERED = ("/tmp", "/run", "/var/log", "/dev/shm")


def mount_files(plan: LabPlan, node: LabNodePlan) -> None:
    """Cover what nodes must not share with the machine or each other; runs in the node's namespaces."""
    node_directory = Path(plan.directory) / "nodes" / node.name
    files = _private_files(plan, node_directory)
    home = _open_path(Path(plan.home_directory(node)))
    visible = {path: _open_path(Path(path)) for path in sorted(plan.visible) if Path(path).exists()}
    covered = {os.path.realpath(path) for path in (*_COVERED, plan.account.home)}
    _mount_kernel_views()
    for path in _COVERED:
        if Path(path).is_dir():
            mount_new("tmpfs", path, "mode=1777" if path != "/run" else "mode=0755")
    _write_files(files)
    if plan.gpus:
        write_smi(Path(LAB_DIRECTORY, "programs"), node.name, plan.gpus)
    Path(plan.account.home).mkdir(parents=True, exist_ok=True)
    bind(home, plan.account.home)
    _restore_visible(visible, covered)
    _bind_private_files()
    for descriptor in (home, *visible.values()):
        os.close(descriptor)


def _open_path(path: Path) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _private_files(plan: LabPlan, node_directory: Path) -> dict[str, str]:
    """The texts that go to the node's /run/lab; read before their source is covered."""
    account = plan.account
    files = {
        "hosts": render_hosts(plan.nodes),
        "sshd_config": render_sshd_config(
            LAB_DIRECTORY,
            programs=f"{LAB_DIRECTORY}/programs" if plan.gpus else None,
            slurm_conf=SLURM_CONF if plan.slurmd else "",
        ),
        "host_key": (node_directory / "host_key").read_text(encoding="ascii"),
        "authorized_keys": (Path(plan.directory) / "id_ed25519.pub").read_text(encoding="ascii"),
        "boot_id": Path("/proc/sys/kernel/random/uuid").read_text(encoding="ascii"),
        "passwd": _passwd_line(account) + _lines_without("/etc/passwd", account.name),
        "shadow": f"{account.name}:*:20000:0:99999:7:::\n",  # sshd takes "!" for a locked account
    }
    if plan.slurmd:
        files["slurm.conf"] = render_slurm_conf(plan, SLURM_DIRECTORY)
    if account.uid != 0:
        files["group"] = _lines_without("/etc/group", "tty")  # sshd would give terminals to an unmapped group
    return files


def _passwd_line(account: LabAccount) -> str:
    return f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:{account.shell}\n"


def _lines_without(path: str, user: str) -> str:
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(user + ":"))


def _mount_kernel_views() -> None:
    """A proc of this PID namespace, a sys of this network namespace, terminals of this node."""
    mount_new("proc", "/proc")
    cgroup_root = Path("/sys/fs/cgroup")
    cgroup_descriptor = _open_path(cgroup_root) if cgroup_root.is_dir() else None
    mount_new("sysfs", "/sys")
    if cgroup_descriptor is not None:
        bind(cgroup_descriptor, str(cgroup_root))
        os.close(cgroup_descriptor)
    mount_new("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620", devices=True)
    bind("/dev/pts/ptmx", "/dev/ptmx")


def _write_files(files: dict[str, str]) -> None:
    Path("/run/sshd").mkdir(mode=0o755)
    Path(LAB_DIRECTORY).mkdir(mode=0o755)
    if "slurm.conf" in files:
        for folder in ("state", "spool"):
            Path(SLURM_DIRECTORY, folder).mkdir(parents=True)
    for name, text in files.items():
        path = Path(LAB_DIRECTORY, name)
        path.touch(mode=0o600 if name in ("host_key", "shadow") else 0o644)
        path.write_text(text, encoding="utf-8")


def _restore_visible(visible: dict[str, int], covered: set[str]) -> None:
    """Mount again, read-only, what the covers hide: the interpreter and the packages that jobs import."""
    for path, descriptor in visible.items():
        if os.path.realpath(path) in covered or _is_same_file(path, descriptor):
            continue
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            Path(path).mkdir(parents=True, exist_ok=True)
            bind(descriptor, path, read_only=True)


def _is_same_file(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor))
    except OSError:
        return False


def _bind_private_files() -> None:
    # a node that was powered off has rebooted
    bind(f"{LAB_DIRECTORY}/boot_id", "/proc/sys/kernel/random/boot_id")
    for name in ("hosts", "passwd", "shadow", "group"):
        if Path(LAB_DIRECTORY, name).exists() and Path("/etc", name).exists():
            bind(f"{LAB_DIRECTORY}/{name}", f"/etc/{name}")


MESSAGE_BYTES = 65536


def failure_message(step: str, error: OSError) -> bytes:
    """A failed step as a message to the caller."""
    filename = f" ({error.filename})" if error.filename else ""
    text = f"{step}: {error.strerror or error}{filename}"
    report: NodeReport = {"error": text, "errno": error.errno}
    return json.dumps(report).encode()


def run_ip(program: str, lines: str, *, force: bool = False) -> None:
    """Run `ip -batch` on lines of text; OSError carries its output, unless forced to continue."""
    command = [program, "-force", "-batch", "-"] if force else [program, "-batch", "-"]
    result = subprocess.run(command, input=lines, text=True, capture_output=True, check=False)
    if result.returncode and not force:
        raise OSError(None, result.stderr.strip())


def serve_requests(
    channel: socket.socket,
    handle: Callable[[NodeRequest], bytes],
    wakeup_fd: int,
    on_child_exit: Callable[[int], object],
) -> None:
    """Answer the holder until it disconnects; when `wakeup_fd` is readable, children that have ended are collected."""
    descriptor = channel.fileno()
    while True:
        readable, _, _ = select.select([descriptor, wakeup_fd], [], [])
        if wakeup_fd in readable:
            on_child_exit(wakeup_fd)
        if descriptor in readable:
            message = channel.recv(MESSAGE_BYTES)
            if not message:
                return
            channel.send(handle(json.loads(message)))


def host_pid() -> int:
    """This process's number in the PID namespace that /proc still shows: the machine's."""
    return int(Path("/proc/self").readlink().name)


def reap_children(wakeup_fd: int) -> list[int]:
    """Collect all children that have ended; returns their numbers."""
    with suppress(BlockingIOError):
        os.read(wakeup_fd, 4096)
    return [pid for pid, _ in reap()]


class NodeInit:
    """PID 1 of a node."""

    def __init__(self, plan: LabPlan, node: LabNodePlan, channel: socket.socket) -> None:
        self.plan = plan
        self.node = node
        self.channel = channel
        self.sshd_pid = 0

    def enter_namespaces(self) -> NoReturn:
        """Enter new namespaces, start a child there as PID 1, report its number, and end."""
        try:
            unshare(NEWNS | NEWUTS | NEWIPC | NEWNET | NEWPID)
            pid = os.fork()
            if pid == 0:
                self._run()
            self.channel.send(json.dumps({"pid": pid}).encode())
        except OSError as error:
            self.channel.send(failure_message(f"create {self.node.name}", error))
        finally:
            os._exit(0)

    def _run(self) -> NoReturn:
        try:
            wakeup_fd = self._prepare()
            self._set_up_node()
            serve_requests(self.channel, self._handle_request, wakeup_fd, self._on_child_exit)
        except OSError as error:
            self.channel.send(failure_message(f"set up {self.node.name}", error))
        except Exception:
            traceback.print_exc()  # to the node's sshd.log
        finally:
            os._exit(1)

    def _prepare(self) -> int:
        set_process_name("lab-init")
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # from inside the node PID 1 cannot be ended by it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        close_other_descriptors(self.channel.fileno())
        node_directory = Path(self.plan.directory, "nodes", self.node.name)
        log = os.open(node_directory / "sshd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self.channel.send(json.dumps({"host_pid": host_pid()}).encode())
        return wake_on(signal.SIGCHLD)

    def _set_up_node(self) -> None:
        mount_files(self.plan, self.node)
        socket.sethostname(self.node.name)
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0", encoding="ascii")
        self.channel.recv(MESSAGE_BYTES)  # the holder has plugged the cables in
        run_ip(self.plan.ip, render_addresses(self.node))
        self._start_sshd()
        self._start_slurm()
        self.channel.send(b'{"ready": true}')

    def _on_child_exit(self, wakeup_fd: int) -> None:
        if self.sshd_pid in reap_children(wakeup_fd):
            self.sshd_pid = 0

    def _handle_request(self, request: NodeRequest) -> bytes:
        try:
            if request["do"] == "start-sshd" and not self.sshd_pid:
                self._start_sshd()
            elif request["do"] == "kill-sshd" and self.sshd_pid:
                self._kill_sshd()
            elif request["do"] == "link":
                lines = "".join(f"link set dev {nic} {request['state']}\n" for nic in request["nics"])
                run_ip(self.plan.ip, lines)
        except OSError as error:
            return failure_message(request["do"], error)
        states = {nic.name: _nic_state(nic.name) for nic in self.node.nics}
        report: NodeReport = {"sshd": self.sshd_pid, "nics": states}
        return json.dumps(report).encode()

    def _kill_sshd(self) -> None:
        """Kill the listening process only: open sessions continue, as they do on a real machine."""
        os.kill(self.sshd_pid, signal.SIGKILL)
        os.waitpid(self.sshd_pid, 0)
        self.sshd_pid = 0

    def _start_sshd(self) -> None:
        self.sshd_pid = self._start_daemon(
            [self.plan.sshd, "-D", "-e", "-f", f"{LAB_DIRECTORY}/sshd_config"], {}
        )

    def _start_slurm(self) -> None:
        """Start Slurm's daemons, if the lab has them; they end with the node."""
        variables = {"SLURM_CONF": SLURM_CONF, "PATH": DEFAULT_PATH}
        if self.plan.slurmctld and self.node == self.plan.nodes[0]:
            self._start_daemon([self.plan.slurmctld, "-D", "-c"], variables)
        if self.plan.slurmd:
            self._start_daemon([self.plan.slurmd, "-D", "-N", self.node.name], variables)

    def _start_daemon(self, argv: list[str], variables: dict[str, str]) -> int:
        pid = os.fork()
        if pid == 0:
            self._exec_daemon(argv, variables)
        return pid

    def _exec_daemon(self, argv: list[str], variables: dict[str, str]) -> NoReturn:
        account = self.plan.account
        try:
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if account.uid != 0:
                # as a mapped root sshd and Slurm fail at setgroups
                enter_user_namespace(account.uid, account.gid, 0, 0)
            os.execve(argv[0], argv, variables)
        except OSError as error:
            os.write(2, failure_message(f"start {os.path.basename(argv[0])}", error) + b"\n")  # noqa: PTH119
        finally:
            os._exit(127)


def _nic_state(name: str) -> str:
    try:
        flags = int(Path("/sys/class/net", name, "flags").read_text(encoding="ascii"), 16)
    except OSError:
        return "missing"
    return "up" if flags & 1 else "down"


def close_other_descriptors(descriptor: int) -> None:
    """Drop what the holder has open; 0, 1 and 2 stay."""
    limit = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, limit if limit > 0 else 65536)
