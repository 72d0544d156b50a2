"""The interpreter, the operating system, the account, the machine's identity, its limits and leftovers."""

from __future__ import annotations

import os
import re
import sys
import zlib
from typing import Any

from .probe_ask import list_folder, read_int, read_text

# What earlier jobs, profile files or images leave behind, and what steers torchrun, NCCL or Gloo unseen.
WATCHED = re.compile(
    r"(PET_|TORCHELASTIC_|NCCL_|GLOO_|MASTER_|TORCH_NCCL_)"
    r"|(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|ROLE_RANK|TP_SOCKET_IFNAME|HCCL_SOCKET_IFNAME"
    r"|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|ASCEND_RT_VISIBLE_DEVICES"
    r"|LD_PRELOAD|PYTHONPATH|PYTHONHOME)$"
)


def interpreter() -> dict[str, Any]:
    """Tell which Python answers."""
    executable = os.path.abspath(sys.executable) if sys.executable else ""
    return {
        "executable": executable,
        "realpath": os.path.realpath(executable) if executable else "",
        "version": "%d.%d.%d" % sys.version_info[:3],
        "implementation": sys.implementation.name,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
    }


def platform() -> dict[str, Any]:
    """Tell the kernel, the processor, the C library and the distribution."""
    uname = os.uname()
    release = _settings(read_text("/etc/os-release") or read_text("/usr/lib/os-release") or "")
    return {
        "system": uname.sysname,
        "kernel": uname.release,
        "machine": uname.machine,
        "libc": _libc(),
        "distro": release.get("PRETTY_NAME") or release.get("ID"),
    }


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def _settings(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith(("#", ";")))
    return {key.strip(): value.strip().strip("\"'") for key, mark, value in pairs if mark}


def account() -> dict[str, Any]:
    """Tell as whom we are logged in."""
    import pwd

    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, shell = entry.pw_name, entry.pw_shell
    except KeyError:
        user, shell = None, None
    return {"user": user, "uid": uid, "gid": os.getgid(), "home": os.path.expanduser("~"), "shell": shell}


def machine() -> dict[str, Any]:
    """Tell which machine this is, how large it is, and at which address SSH arrived."""
    memory = _meminfo()
    return {
        "hostname": os.uname().nodename,
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
        "machine_id": _hashed(read_text("/etc/machine-id")),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": memory.get("MemTotal"),
        "memory_free": memory.get("MemAvailable"),
        "memory_limit": read_int("/sys/fs/cgroup/memory.max"),
        "ssh_address": _ssh_address(os.environ.get("SSH_CONNECTION", "")),
    }


def _hashed(text: str | None) -> str | None:
    """Make an id comparable without giving it away, as machine-id(5) asks: 32 of its 128 bits remain."""
    return "%08x" % zlib.crc32(text.encode()) if text else None


def _meminfo() -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB", read_text("/proc/meminfo") or "", re.M)
    return {key: int(value) * 1024 for key, value in found}


def _ssh_address(connection: str) -> str | None:
    words = connection.split()
    return words[2] if len(words) == 4 else None


def limits() -> dict[str, Any]:
    """Tell the resource limits of this session, soft and hard; -1 is unlimited."""
    import resource

    kinds = {
        "nofile": resource.RLIMIT_NOFILE,
        "memlock": resource.RLIMIT_MEMLOCK,
        "nproc": resource.RLIMIT_NPROC,
        "stack": resource.RLIMIT_STACK,
    }
    pairs = {name: resource.getrlimit(kind) for name, kind in kinds.items()}
    unlimited = resource.RLIM_INFINITY
    return {
        name: {"soft": -1 if soft == unlimited else soft, "hard": -1 if hard == unlimited else hard}
        for name, (soft, hard) in pairs.items()
    }


def environment() -> dict[str, str]:
    """Tell the variables that would steer a job unseen; all others stay on the node."""
    return {key: value[:300] for key, value in sorted(os.environ.items()) if WATCHED.match(key)}


def logind() -> dict[str, Any]:
    """Tell whether logind ends a user's processes with the login session."""
    running = os.path.isdir("/run/systemd/system")
    found = {"KillUserProcesses": "no", "RemoveIPC": "yes"}  # systemd's own defaults
    for path in _logind_files() if running else []:
        found.update(_settings(read_text(path) or ""))
    names = ("KillUserProcesses", "RemoveIPC")
    kills, removes = (running and found[name].lower() in ("yes", "true", "on", "1") for name in names)
    return {"running": running, "kills": kills, "removes_ipc": removes, "linger": _lingers()}


def _logind_files() -> list[str]:
    folders = ["/usr/lib/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"]
    parts = [path for folder in folders for path in list_folder(folder, "*.conf")]
    return ["/etc/systemd/logind.conf", *sorted(parts, key=os.path.basename)]


def _lingers() -> bool:
    import pwd

    try:
        return os.path.exists("/var/lib/systemd/linger/" + pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False
