"""The file system of a lab node: private tmp, run, proc, sys and home over the machine's own files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from clusterctl.lab.layout import Account, LabPlan, NodePlan, render_hosts, render_sshd_config
from clusterctl.lab.simulated_gpus import write_smi
from clusterctl.lab.syscalls import bind, mount_new

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
