"""Host, account, limits, cgroup, disks."""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from typing import Any

from ...protocol.messages.environment import is_cleared
from ...protocol.messages.facts import (
    Account,
    Cgroup,
    Checkpoint,
    Disk,
    Encoding,
    Interpreter,
    LeftoverSharedMemory,
    Limit,
    Limits,
    Logind,
    Machine,
    Platform,
    Workdir,
)
from ...protocol.run_paths import WorkdirPaths
from .questions import list_folder, read_int, read_memory, read_text

# Steers NCCL, Gloo, Python
WATCHED = re.compile(
    r"NCCL_|GLOO_|TORCH_NCCL_|((TP|HCCL)_SOCKET_IFNAME|(CUDA|HIP|ROCR|ASCEND_RT)_VISIBLE_DEVICES"
    r"|LD_PRELOAD|PYTHONPATH|PYTHONHOME)$"
)
CGROUPS = "/sys/fs/cgroup"
SHM = "/dev/shm"
MAX_FILES = 4000
UNUSED_AFTER = 3600.0  # seconds; NCCL's files have no pid in their names: only old ones are surely not in use
TORCH_FILE = re.compile(r"torch_(\d+)_")


def interpreter() -> Interpreter:
    """Return which Python answers."""
    executable = os.path.abspath(sys.executable) if sys.executable else ""
    return Interpreter(
        executable=executable,
        realpath=os.path.realpath(executable) if executable else "",
        version="%d.%d.%d" % sys.version_info[:3],
        implementation=sys.implementation.name,
        prefix=sys.prefix,
        base_prefix=sys.base_prefix,
    )


def platform() -> Platform:
    """Read the kernel, the processor, the C library and the distribution."""
    uname = os.uname()
    release = _parse_settings(read_text("/etc/os-release") or read_text("/usr/lib/os-release") or "")
    return Platform(
        system=uname.sysname,
        kernel=uname.release,
        machine=uname.machine,
        libc=_libc(),
        distro=release.get("PRETTY_NAME") or release.get("ID"),
    )


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def _parse_settings(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith(("#", ";")))
    return {key.strip(): value.strip().strip("\"'") for key, mark, value in pairs if mark}


def account() -> Account:
    """Read the account that is logged in."""
    import pwd

    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, shell = entry.pw_name, entry.pw_shell
    except KeyError:
        user, shell = None, None
    return Account(user=user, uid=uid, gid=os.getgid(), home=os.path.expanduser("~"), shell=shell)


def machine() -> Machine:
    """Return which machine this is, how large it is, and at which address SSH arrived."""
    memory = read_memory()
    return Machine(
        hostname=os.uname().nodename,
        boot_id=read_text("/proc/sys/kernel/random/boot_id"),
        machine_id=_hashed(read_text("/etc/machine-id")),
        cpus=os.cpu_count(),
        cpus_allowed=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory=memory.get("MemTotal"),
        memory_free=memory.get("MemAvailable"),
        memory_limit=read_int("/sys/fs/cgroup/memory.max"),
        ssh_address=_ssh_address(os.environ.get("SSH_CONNECTION", "")),
    )


def _hashed(text: str | None) -> str | None:
    """Make an id comparable without giving it away, as machine-id(5) asks: 32 of its 128 bits remain."""
    return "%08x" % zlib.crc32(text.encode()) if text else None


def _ssh_address(connection: str) -> str | None:
    fields = connection.split()
    return fields[2] if len(fields) == 4 else None


def limits() -> Limits:
    """Read the resource limits of this session, soft and hard; -1 is unlimited."""
    import resource

    def limit(kind: int) -> Limit:
        soft, hard = (-1 if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(kind))
        return Limit(soft=soft, hard=hard)

    return Limits(
        nofile=limit(resource.RLIMIT_NOFILE),
        memlock=limit(resource.RLIMIT_MEMLOCK),
        nproc=limit(resource.RLIMIT_NPROC),
        stack=limit(resource.RLIMIT_STACK),
    )


def environment() -> dict[str, str]:
    """Read the variables that would steer a job unseen; all others stay on the node."""
    return {
        key: value[:300] for key, value in sorted(os.environ.items()) if is_cleared(key) or WATCHED.match(key)
    }


def logind() -> Logind:
    """Return whether logind ends a user's processes with the login session."""
    running = os.path.isdir("/run/systemd/system")
    settings = {"KillUserProcesses": "no", "RemoveIPC": "yes"}  # systemd's own defaults
    for path in _logind_files() if running else []:
        settings.update(_parse_settings(read_text(path) or ""))
    keys = ("KillUserProcesses", "RemoveIPC")
    kills, removes = (running and settings[key].lower() in ("yes", "true", "on", "1") for key in keys)
    return Logind(running=running, kills=kills, removes_ipc=removes, linger=_lingers())


def _logind_files() -> list[str]:
    folders = ["/usr/lib/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"]
    drop_ins = [path for folder in folders for path in list_folder(folder, "*.conf")]
    return ["/etc/systemd/logind.conf", *sorted(drop_ins, key=os.path.basename)]


def _lingers() -> bool:
    import pwd

    try:
        return os.path.exists("/var/lib/systemd/linger/" + pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False


def cgroup() -> Cgroup:
    """Read the tightest limits on the way from this session's control group to the root; None where there is none.

    Memory in bytes, `cpus` in processors, `pids_free` is how many more processes and threads may be made.
    """
    levels = list(_levels(_own_group()))
    pairs = [(level, read_int(level + "/pids.max")) for level in levels]
    memory = [(read_int(level + "/memory.max"), _memory_in_use(level)) for level in levels]
    bounded = [(most, used) for most, used in memory if most is not None]
    return Cgroup(
        memory=min([most for most, _ in bounded], default=None),
        memory_free=min([most - used for most, used in bounded], default=None),
        cpus=min(filter(None, map(_processors, levels)), default=None),
        pids_free=min(
            [most - (read_int(level + "/pids.current") or 0) for level, most in pairs if most is not None],
            default=None,
        ),
    )


def _own_group() -> str:
    """Return the path of this process's group; of version 2 only, which all systems of the last years have."""
    for line in (read_text("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"


def _levels(group: str) -> Any:
    while group.strip("/"):
        yield CGROUPS + group.rstrip("/")
        group = os.path.dirname(group.rstrip("/"))
    yield CGROUPS  # in a container this is the container's own


def _memory_in_use(level: str) -> int:
    """Return what is charged to a group without the cached files that the kernel drops before it kills anybody."""
    cached = re.search(r"^inactive_file (\d+)$", read_text(level + "/memory.stat") or "", re.MULTILINE)
    return max(0, (read_int(level + "/memory.current") or 0) - (int(cached[1]) if cached else 0))


def _processors(level: str) -> float | None:
    fields = (read_text(level + "/cpu.max") or "").split()
    return int(fields[0]) / int(fields[1]) if len(fields) == 2 and fields[0].isdigit() else None


def shared_memory() -> LeftoverSharedMemory:
    """Return what this account's processes that are gone have left in /dev/shm: files and bytes."""
    files = size = 0
    with os.scandir(SHM) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_FILES:
                break
            unused = _unused_bytes(entry)
            files, size = files + bool(unused), size + unused
    return LeftoverSharedMemory(files=files, bytes=size)


def _unused_bytes(entry: os.DirEntry[str]) -> int:
    """Return the bytes that a file takes if no process can need it any more, else 0."""
    pid_match = TORCH_FILE.match(entry.name)
    if not pid_match and not entry.name.startswith("nccl-"):
        return 0
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    if status.st_uid != os.getuid():
        return 0
    unused = (
        not os.path.exists("/proc/" + pid_match.group(1))
        if pid_match
        else time.time() - status.st_mtime > UNUSED_AFTER
    )
    return status.st_blocks * 512 if unused else 0


def text() -> Encoding:
    """Return how Python reads and writes text here, and the variables that decide it."""
    names = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    variables = ["%s=%s" % (name, os.environ[name][:60]) for name in names if os.environ.get(name)]
    return Encoding(encoding=sys.getfilesystemencoding(), variables=tuple(variables))


def nearest_existing(path: str) -> str:
    """Return the path, or the closest directory above it that exists."""
    path = os.path.abspath(path)
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def disk(path: str) -> Disk:
    """Read the room for this user on the file system that holds `path`, in bytes and inodes."""
    path = os.path.expanduser(path)
    nearest = nearest_existing(path)
    usage = os.statvfs(nearest)
    mount, kind = _mount_of(os.path.realpath(nearest))
    return Disk(
        path=path,
        mount=mount,
        kind=kind,
        total=usage.f_blocks * usage.f_frsize,
        free=usage.f_bavail * usage.f_frsize,
        inodes=usage.f_files or None,  # btrfs and others count none
        inodes_free=usage.f_favail if usage.f_files else None,
        read_only=bool(usage.f_flag & os.ST_RDONLY),
    )


def _mount_of(path: str) -> tuple[str | None, str | None]:
    best: tuple[str | None, str | None] = (None, None)
    for line in (read_text("/proc/self/mounts", 1 << 20) or "").splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = _unescaped(fields[1])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0] or ""):
            best = (mount, fields[2])
    return best


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def workdir(path: str, payload: str) -> Workdir:
    """Return whether clusterctl's directory exists, whose it is, and whether it could be written."""
    path = os.path.expanduser(path)
    nearest = nearest_existing(path)
    exists = nearest == os.path.abspath(path)
    status = os.stat(nearest)
    return Workdir(
        path=path,
        exists=exists,
        nearest=nearest,
        directory=os.path.isdir(nearest),
        owner=status.st_uid,
        mode=status.st_mode & 0o7777,
        writable=os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK),
        payload=bool(payload) and os.path.isfile(WorkdirPaths(path).payload(payload)),
    )


def checkpoint(path: str, job: str) -> Checkpoint | None:
    """Describe the newest directory among a job's outputs that holds parts of a distributed checkpoint (DCP)."""
    newest: Checkpoint | None = None
    root, seen = os.path.join(WorkdirPaths(os.path.expanduser(path)).outputs, job), 0
    for top, folders, names in os.walk(root) if job else ():
        seen += len(folders) + len(names)
        if seen > MAX_FILES:
            break
        parts = sorted(name for name in names if name == ".metadata" or name.endswith(".distcp"))
        changed = os.stat(top).st_mtime
        if parts and (newest is None or changed > (newest.time or 0.0)):
            digest = zlib.crc32("/".join(parts).encode("utf-8", "replace"))
            newest = Checkpoint(
                path=os.path.relpath(top, root),
                time=changed,
                metadata=".metadata" in parts,
                parts=len(parts) - (".metadata" in parts),
                names=digest,
            )
    return newest


def nccl_conf() -> dict[str, list[str]]:
    """Read the settings in NCCL's own files, which apply unseen; by path."""
    paths = ["/etc/nccl.conf", os.path.expanduser("~/.nccl.conf"), os.environ.get("NCCL_CONF_FILE", "")]
    texts = {path: read_text(path) for path in paths if path}
    return {path: _lines(text) for path, text in texts.items() if text is not None}


def _lines(text: str) -> list[str]:
    lines = [line.strip()[:300] for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")][:50]
