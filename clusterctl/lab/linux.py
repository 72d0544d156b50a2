"""What a lab uses of this machine: programs, an account, namespaces, mounts, the end of process trees.

Where one of them is missing, LabError has the reason why there can be no lab.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from clusterctl.errors import LabError
from clusterctl.lab.layout import LabAccount
from clusterctl.node.runtime.processes import Stat, descendants, own_processes, send_signal

TAG = "CLUSTERCTL_LAB"  # in the environment of every process of such a lab: the lab's directory
_KILL_SECONDS = 10.0


def kill_descendants(pid: int) -> None:
    """Kill all that descends from a process, until nothing does; a process that forks meanwhile is found too."""
    _kill_until_gone(lambda: list_descendants(pid))


def list_descendants(pid: int) -> list[Stat]:
    """The living processes below a process, parents first."""
    return [stat for stat in descendants(pid) if stat.running]


def kill_lab_processes(directory: Path) -> None:
    """Kill what still has the tag of a lab: its holder died, and with it the record of these processes."""
    tag = f"{TAG}={directory}".encode(errors="surrogateescape")
    _kill_until_gone(lambda: own_processes("environ", lambda variables: tag in variables))


def _kill_until_gone(list_processes: Callable[[], Iterable[Stat]]) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while (processes := list(list_processes())) and time.monotonic() < deadline:
        for process in processes:
            send_signal(process.identity, signal.SIGKILL)
        time.sleep(0.005)


NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_NOATIME, _NODIRATIME, _RELATIME = 0x400, 0x800, 0x200000
_SET_NAME = 15  # PR_SET_NAME
_ST_RELATIME = 0x1000

_libc = ctypes.CDLL(None, use_errno=True)


def _raise_errno(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)


def unshare(flags: int) -> None:
    """Put this process (for NEWPID: its next child) into new namespaces."""
    _raise_errno(_libc.unshare(ctypes.c_int(flags)), "unshare")


def enter_user_namespace(inside_uid: int, inside_gid: int, outside_uid: int, outside_gid: int) -> None:
    """Enter a new user namespace with one user and one group in it; ids outside are those of the parent."""
    unshare(NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{inside_uid} {outside_uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{inside_gid} {outside_gid} 1", encoding="ascii")


def _mount(source: str, target: str, fstype: str | None, flags: int, data: str | None) -> None:
    arguments = [None if argument is None else os.fsencode(argument) for argument in (source, target, fstype)]
    options = None if data is None else data.encode()
    _raise_errno(_libc.mount(*arguments, ctypes.c_ulong(flags), options), f"mount {target}")


def keep_mounts_private() -> None:
    """Hide later mounts of this namespace from outside, and the reverse."""
    _mount("none", "/", None, _REC | _PRIVATE, None)


def mount_new(fstype: str, target: str, options: str | None = None, *, devices: bool = False) -> None:
    """Mount a fresh file system of a kind (tmpfs, proc, sysfs, devpts) without setuid programs."""
    extra_flags = _NOEXEC if fstype in ("proc", "sysfs", "devpts") else 0
    _mount(fstype, target, fstype, _NOSUID | extra_flags | (0 if devices else _NODEV), options)


def bind(source: int | str, target: str, *, read_only: bool = False) -> None:
    """Show a file or directory (a path, or a descriptor opened before it was covered) at another path."""
    source_path = f"/proc/self/fd/{source}" if isinstance(source, int) else source
    _mount(source_path, target, None, _BIND | _REC, None)
    if read_only:
        _mount("none", target, None, _REMOUNT | _BIND | _READ_ONLY | _locked_flags(target), None)


def _locked_flags(target: str) -> int:
    """The flags that the mount has: an ordinary user may not drop them, nor leave them out."""
    current = os.statvfs(target).f_flag
    flags = current & (_NOSUID | _NODEV | _NOEXEC | _NOATIME | _NODIRATIME)
    return flags | (_RELATIME if current & _ST_RELATIME else 0)


def set_process_name(name: str) -> None:
    """Name this process as `ps -o comm` shows it."""
    _libc.prctl(_SET_NAME, name.encode()[:15], 0, 0, 0)


_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
}


def require_linux() -> None:
    """LabError on other systems: they have no network namespaces."""
    if sys.platform != "linux":
        raise LabError("CC-LAB-001", "system", system=sys.platform)


def find_program(name: str) -> str:
    """The absolute path of a program, also where PATH lacks the sbin directories."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    if path is None:
        raise LabError("CC-LAB-001", name=name, package=_PACKAGES[name])
    return os.path.abspath(path)  # noqa: PTH100  (a symlink is kept: sshd goes by its own name)


def find_account() -> LabAccount:
    """The calling user, with a home and a shell that work inside a node."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwuid(uid)
        name, home, shell = entry.pw_name, entry.pw_dir, entry.pw_shell or "/bin/sh"
    except KeyError:
        name, home, shell = f"uid{uid}", "", "/bin/sh"
    home = home if _owns(home, uid) else "/run/home"
    return LabAccount(name, uid, gid, home, shell if _allows_login(shell) else "/bin/sh")


def _owns(home: str, uid: int) -> bool:
    try:
        return home not in ("", "/") and Path(home).is_dir() and Path(home).stat().st_uid == uid
    except OSError:
        return False


def _allows_login(shell: str) -> bool:
    return Path(shell).name not in ("nologin", "false") and os.access(shell, os.X_OK)


def visible_paths() -> tuple[str, ...]:
    """The directories that must stay visible in the nodes for `sys.executable` to work there."""
    package = Path(__file__).parents[2]
    paths = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, str(package)]
    paths += _link_directories(Path(sys.executable))
    paths += _package_directories()
    if Path("/run/current-system").exists():
        paths.append("/run/current-system")  # NixOS keeps every program there
    all_paths = {*paths, *(os.path.realpath(path) for path in paths)}
    return tuple(sorted(path for path in all_paths if not _is_inside_any(path, all_paths)))


def _link_directories(executable: Path) -> list[str]:
    """The directories of every link between the interpreter's name and its file."""
    directories = [str(executable.parent)]
    while executable.is_symlink() and len(directories) < 20:
        executable = executable.parent / executable.readlink()
        directories.append(os.path.normpath(executable.parent))
    return directories


def _package_directories() -> list[str]:
    """Where packages come from: .venv may borrow another environment's torch, which lies anywhere."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if Path(path).name in names and Path(path).is_dir()]


def _is_inside_any(path: str, directories: set[str]) -> bool:
    return any(
        path != directory and path.startswith(directory.rstrip("/") + "/") for directory in directories
    )


def namespaces_error(step: str) -> LabError:
    """Why this machine does not let the lab make namespaces, and what to do about it."""
    return LabError("CC-LAB-002", _namespaces_case(), evidence=step)


def _namespaces_case() -> str:
    if _read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return "apparmor"
    if _read_setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return "off"
    if _read_setting("/proc/sys/user/max_user_namespaces") == "0":
        return "limit"
    return "container" if _is_container() else ""


def _read_setting(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _is_container() -> bool:
    markers = ("/.dockerenv", "/run/.containerenv")
    return any(Path(marker).exists() for marker in markers) or "container" in os.environ
