"""Room on disks, the state of the working directory, NCCL's own settings files."""

from __future__ import annotations

import os
import re
from typing import Any

from .probe_ask import read_text


def nearest_existing(path: str) -> str:
    """Give the path, or the closest directory above it that exists."""
    path = os.path.abspath(path)
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def disk(path: str) -> dict[str, Any]:
    """Tell the room for this user on the file system that holds `path`, in bytes and inodes."""
    path = os.path.expanduser(path)
    place = nearest_existing(path)
    room = os.statvfs(place)
    mount, kind = _mount_of(os.path.realpath(place))
    return {
        "path": path,
        "mount": mount,
        "kind": kind,
        "total": room.f_blocks * room.f_frsize,
        "free": room.f_bavail * room.f_frsize,
        "inodes": room.f_files or None,  # btrfs and others count none
        "inodes_free": room.f_favail if room.f_files else None,
        "read_only": bool(room.f_flag & os.ST_RDONLY),
    }


def _mount_of(path: str) -> tuple[str | None, str | None]:
    best: tuple[str | None, str | None] = (None, None)
    for line in (read_text("/proc/self/mounts", 1 << 20) or "").splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        mount = _unescaped(words[1])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0] or ""):
            best = (mount, words[2])
    return best


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)


def workdir(path: str, payload: str) -> dict[str, Any]:
    """Tell whether clusterctl's directory exists, whose it is, and whether it could be written."""
    path = os.path.expanduser(path)
    place = nearest_existing(path)
    exists = place == os.path.abspath(path)
    found = os.stat(place)
    return {
        "path": path,
        "exists": exists,
        "nearest": place,
        "directory": os.path.isdir(place),
        "owner": found.st_uid,
        "mode": found.st_mode & 0o7777,
        "writable": os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK),
        "payload": bool(payload) and os.path.isfile(os.path.join(path, "bin", payload, "payload.zip")),
    }


def nccl_conf() -> dict[str, list[str]]:
    """Tell the settings in NCCL's own files, which apply unseen; by path."""
    paths = ["/etc/nccl.conf", os.path.expanduser("~/.nccl.conf"), os.environ.get("NCCL_CONF_FILE", "")]
    texts = {path: read_text(path) for path in paths if path}
    return {path: _lines(text) for path, text in texts.items() if text is not None}


def _lines(text: str) -> list[str]:
    lines = [line.strip()[:300] for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")][:50]
