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
from typing import Any, NoReturn

from clusterctl.lab.layout import (
    Account,
    LabPlan,
    NodePlan,
    render_addresses,
    render_hosts,
    render_sshd_config,
)
from clusterctl.lab.linux import (
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    become,
    bind,
    mount_new,
    set_name,
    unshare,
)
from clusterctl.lab.simulated_gpus import write_smi

FOLDER = "/run/lab"
_COVERS = ("/tmp", "/run", "/var/log", "/dev/shm")


def furnish(plan: LabPlan, node: NodePlan) -> None:
    """Cover what nodes must not share with the machine or each other; runs in the node's namespaces."""
    own = Path(plan.directory) / "nodes" / node.name
    files = _private_files(plan, own)
    home = _open(Path(plan.home(node)))
    visible = {path: _open(Path(path)) for path in sorted(plan.visible) if Path(path).exists()}
    covered = {os.path.realpath(path) for path in (*_COVERS, plan.account.home)}
    _mount_kernel_views()
    for path in _COVERS:
        if Path(path).is_dir():
            mount_new("tmpfs", path, "mode=1777" if path != "/run" else "mode=0755")
    _write_files(files)
    if plan.gpus:
        write_smi(Path(FOLDER, "programs"), node.name, plan.gpus)
    Path(plan.account.home).mkdir(parents=True, exist_ok=True)
    bind(home, plan.account.home)
    _show_again(visible, covered)
    _bind_private_files()
    for descriptor in (home, *visible.values()):
        os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _private_files(plan: LabPlan, own: Path) -> dict[str, str]:
    """The texts that go to the node's /run/lab; read before their source is covered."""
    account = plan.account
    files = {
        "hosts": render_hosts(plan.nodes),
        "sshd_config": render_sshd_config(FOLDER, programs=f"{FOLDER}/programs" if plan.gpus else None),
        "host_key": (own / "host_key").read_text(encoding="ascii"),
        "authorized_keys": (Path(plan.directory) / "id_ed25519.pub").read_text(encoding="ascii"),
        "boot_id": Path("/proc/sys/kernel/random/uuid").read_text(encoding="ascii"),
        "passwd": _passwd_line(account) + _lines_without("/etc/passwd", account.name),
        "shadow": f"{account.name}:*:20000:0:99999:7:::\n",  # sshd takes "!" for a locked account
    }
    if account.uid != 0:
        files["group"] = _lines_without("/etc/group", "tty")  # sshd would give terminals to an unmapped group
    return files


def _passwd_line(account: Account) -> str:
    return f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:{account.shell}\n"


def _lines_without(path: str, name: str) -> str:
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(name + ":"))


def _mount_kernel_views() -> None:
    """A proc of this PID namespace, a sys of this network namespace, terminals of this node."""
    mount_new("proc", "/proc")
    groups = Path("/sys/fs/cgroup")
    kept = _open(groups) if groups.is_dir() else None
    mount_new("sysfs", "/sys")
    if kept is not None:
        bind(kept, str(groups))
        os.close(kept)
    mount_new("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620", devices=True)
    bind("/dev/pts/ptmx", "/dev/ptmx")


def _write_files(files: dict[str, str]) -> None:
    Path("/run/sshd").mkdir(mode=0o755)
    Path(FOLDER).mkdir(mode=0o755)
    for name, text in files.items():
        path = Path(FOLDER, name)
        path.touch(mode=0o600 if name in ("host_key", "shadow") else 0o644)
        path.write_text(text, encoding="utf-8")


def _show_again(visible: dict[str, int], covered: set[str]) -> None:
    """Bring back, read-only, what the covers hide: the interpreter and the packages that jobs import."""
    for path, descriptor in visible.items():
        if os.path.realpath(path) in covered or _same(path, descriptor):
            continue
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            Path(path).mkdir(parents=True, exist_ok=True)
            bind(descriptor, path, read_only=True)


def _same(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor))
    except OSError:
        return False


def _bind_private_files() -> None:
    bind(f"{FOLDER}/boot_id", "/proc/sys/kernel/random/boot_id")  # a node that was powered off has rebooted
    for name in ("hosts", "passwd", "shadow", "group"):
        if Path(FOLDER, name).exists() and Path("/etc", name).exists():
            bind(f"{FOLDER}/{name}", f"/etc/{name}")


MESSAGE_BYTES = 65536


def describe(step: str, error: OSError) -> bytes:
    """A failed step as a message to whoever waits."""
    where = f" ({error.filename})" if error.filename else ""
    text = f"{step}: {error.strerror or error}{where}"
    return json.dumps({"error": text, "errno": error.errno}).encode()


def run_ip(program: str, lines: str, *, force: bool = False) -> None:
    """Run `ip -batch` on lines of text; OSError carries what it said, unless forced to go on."""
    words = [program, "-force", "-batch", "-"] if force else [program, "-batch", "-"]
    done = subprocess.run(words, input=lines, text=True, capture_output=True, check=False)
    if done.returncode and not force:
        raise OSError(None, done.stderr.strip())


def obey(
    channel: socket.socket,
    answer: Callable[[dict[str, Any]], bytes],
    wake: int,
    reap_all: Callable[[int], object],
) -> None:
    """Answer the holder until it hangs up; when `wake` says that a child has ended, all such are collected."""
    line = channel.fileno()
    while True:
        readable, _, _ = select.select([line, wake], [], [])
        if wake in readable:
            reap_all(wake)
        if line in readable:
            message = channel.recv(MESSAGE_BYTES)
            if not message:
                return
            channel.send(answer(json.loads(message)))


def host_pid() -> int:
    """This process's number in the PID namespace that /proc still shows: the machine's."""
    return int(Path("/proc/self").readlink().name)


def watch_children() -> int:
    """Catch SIGCHLD; returns the descriptor that becomes readable when a child has ended."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return readable


def reap(wake: int) -> list[int]:
    """Collect all children that have ended; returns their numbers."""
    ended = []
    with suppress(BlockingIOError):
        os.read(wake, 4096)
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.append(pid)
    return ended


class Init:
    """PID 1 of a node."""

    def __init__(self, plan: LabPlan, node: NodePlan, channel: socket.socket) -> None:
        self.plan = plan
        self.node = node
        self.channel = channel
        self.sshd = 0

    def be_born(self) -> NoReturn:
        """Enter new namespaces, leave a child there as PID 1, tell its number, and end."""
        try:
            unshare(NEWNS | NEWUTS | NEWIPC | NEWNET | NEWPID)
            pid = os.fork()
            if pid == 0:
                self._live()
            self.channel.send(json.dumps({"pid": pid}).encode())
        except OSError as error:
            self.channel.send(describe(f"create {self.node.name}", error))
        finally:
            os._exit(0)

    def _live(self) -> NoReturn:
        try:
            wake = self._prepare()
            self._move_in()
            obey(self.channel, self._answer, wake, self._reap)
        except OSError as error:
            self.channel.send(describe(f"set up {self.node.name}", error))
        except Exception:
            traceback.print_exc()  # to the node's sshd.log
        finally:
            os._exit(1)

    def _prepare(self) -> int:
        set_name("lab-init")
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # from inside the node PID 1 cannot be ended by it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        close_all_but(self.channel.fileno())
        own = Path(self.plan.directory, "nodes", self.node.name)
        log = os.open(own / "sshd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self.channel.send(json.dumps({"host_pid": host_pid()}).encode())
        return watch_children()

    def _move_in(self) -> None:
        furnish(self.plan, self.node)
        socket.sethostname(self.node.name)
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0", encoding="ascii")
        self.channel.recv(MESSAGE_BYTES)  # the holder has plugged the cables in
        run_ip(self.plan.ip, render_addresses(self.node))
        self._start_sshd()
        self.channel.send(b'{"ready": true}')

    def _reap(self, wake: int) -> None:
        if self.sshd in reap(wake):
            self.sshd = 0

    def _answer(self, request: dict[str, Any]) -> bytes:
        try:
            if request["do"] == "start-sshd" and not self.sshd:
                self._start_sshd()
            elif request["do"] == "kill-sshd" and self.sshd:
                self._kill_sshd()
            elif request["do"] == "link":
                lines = "".join(f"link set dev {nic} {request['state']}\n" for nic in request["nics"])
                run_ip(self.plan.ip, lines)
        except OSError as error:
            return describe(str(request["do"]), error)
        states = {nic.name: _nic_state(nic.name) for nic in self.node.nics}
        return json.dumps({"sshd": self.sshd, "nics": states}).encode()

    def _kill_sshd(self) -> None:
        """Kill the listening process only: open sessions live on, as they do on a real machine."""
        os.kill(self.sshd, signal.SIGKILL)
        os.waitpid(self.sshd, 0)
        self.sshd = 0

    def _start_sshd(self) -> None:
        pid = os.fork()
        if pid == 0:
            self._exec_sshd()
        self.sshd = pid

    def _exec_sshd(self) -> NoReturn:
        account = self.plan.account
        try:
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if account.uid != 0:
                become(account.uid, account.gid, 0, 0)  # as a mapped root sshd fails at setgroups
            os.execve(self.plan.sshd, [self.plan.sshd, "-D", "-e", "-f", f"{FOLDER}/sshd_config"], {})
        except OSError as error:
            os.write(2, describe("start sshd", error) + b"\n")
        finally:
            os._exit(127)


def _nic_state(name: str) -> str:
    try:
        flags = int(Path("/sys/class/net", name, "flags").read_text(encoding="ascii"), 16)
    except OSError:
        return "missing"
    return "up" if flags & 1 else "down"


def close_all_but(kept: int) -> None:
    """Drop what the holder has open; 0, 1 and 2 stay."""
    limit = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, kept)
    os.closerange(kept + 1, limit if limit > 0 else 65536)
