"""What this machine offers to a lab: programs, an account, an interpreter; and why it may refuse."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path

from clusterctl.errors import LabError
from clusterctl.lab.layout import Account

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
}


def require_linux() -> None:
    """LabError on other systems: they have no network namespaces."""
    if sys.platform != "linux":
        raise LabError(
            f"the lab needs Linux, this is {sys.platform}",
            code="CC-LAB-001",
            fix="use a Linux machine: jobs run on Linux only",
        )


def find_program(name: str) -> str:
    """The absolute path of a program, also where PATH lacks the sbin directories."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    if found is None:
        raise LabError(
            f"the lab needs `{name}`, which is not installed",
            code="CC-LAB-001",
            fix=f"sudo apt-get install {_PACKAGES[name]}",
        )
    return os.path.abspath(found)  # noqa: PTH100  (a symlink is kept: sshd goes by its own name)


def find_account() -> Account:
    """The calling user, with a home and a shell that work inside a node."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwuid(uid)
        name, home, shell = entry.pw_name, entry.pw_dir, entry.pw_shell or "/bin/sh"
    except KeyError:
        name, home, shell = f"uid{uid}", "", "/bin/sh"
    home = home if _owns(home, uid) else "/run/home"
    return Account(name, uid, gid, home, shell if _lets_in(shell) else "/bin/sh")


def _owns(home: str, uid: int) -> bool:
    try:
        return home not in ("", "/") and Path(home).is_dir() and Path(home).stat().st_uid == uid
    except OSError:
        return False


def _lets_in(shell: str) -> bool:
    return Path(shell).name not in ("nologin", "false") and os.access(shell, os.X_OK)


def visible_paths() -> tuple[str, ...]:
    """The directories that must stay visible in the nodes for `sys.executable` to work there."""
    package = Path(__file__).parents[2]
    places = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, str(package)]
    places += _link_directories(Path(sys.executable))
    places += _package_directories()
    if Path("/run/current-system").exists():
        places.append("/run/current-system")  # NixOS keeps every program there
    both = {*places, *(os.path.realpath(place) for place in places)}
    return tuple(sorted(place for place in both if not _inside_any(place, both)))


def _link_directories(executable: Path) -> list[str]:
    """The directories of every link between the interpreter's name and its file."""
    found = [str(executable.parent)]
    while executable.is_symlink() and len(found) < 20:
        executable = executable.parent / executable.readlink()
        found.append(os.path.normpath(executable.parent))
    return found


def _package_directories() -> list[str]:
    """Where packages come from: .venv may borrow another environment's torch, which lies anywhere."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if Path(path).name in names and Path(path).is_dir()]


def _inside_any(place: str, places: set[str]) -> bool:
    return any(place != other and place.startswith(other.rstrip("/") + "/") for other in places)


def refusal(step: str) -> LabError:
    """Why this machine does not let the lab make namespaces, and what to do about it."""
    reason, fix = _reason_and_fix()
    message = f"this machine does not allow the lab's namespaces: {reason}"
    return LabError(message, code="CC-LAB-002", fix=fix, evidence=step)


def _reason_and_fix() -> tuple[str, str]:
    if _setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return (
            "AppArmor restricts user namespaces",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (or run the lab as root)",
        )
    if _setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return "user namespaces are switched off", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("/proc/sys/user/max_user_namespaces") == "0":
        return "user namespaces are limited to 0", "sudo sysctl -w user.max_user_namespaces=15000"
    if _in_container():
        return (
            "it is a container without the needed rights",
            "start the container with `docker run --privileged`",
        )
    return "the kernel or its security module said no", "run the lab as root, or on another Linux machine"


def _setting(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _in_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(Path(mark).exists() for mark in marks) or "container" in os.environ
