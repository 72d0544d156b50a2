"""What this machine offers to a lab: programs, an account, an interpreter; and why it may refuse."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path

from clusterctl.errors import LabError
from clusterctl.lab.layout import LabAccount

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
