"""Programs that are asked within a time limit, above all nvidia-smi; how its tables read, and who uses memory."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ...protocol.messages.facts import GpuProcess

if TYPE_CHECKING:
    from ...protocol.messages.files import GpuUser

# Where the driver's tools lie when PATH is as bare as a non-login shell's may be.
EXTRA_PATH = ["/usr/bin", "/usr/local/bin", "/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin"]
MAX_OUTPUT = 262144  # bytes of an answer
BUSY_MEMORY = 512  # MiB; an idle GPU uses less
USED = ["--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
APPS = ["--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"]
MAX_APPS = 64  # processes reported


def find(program: str, others: Sequence[str] = EXTRA_PATH) -> Optional[str]:
    """Find a program on PATH, or in the folders of the driver's tools: PATH may be bare."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *others]
    paths = (os.path.join(folder, program) for folder in folders if folder)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def query(command: List[str], limit: float) -> Tuple[str, Optional[int]]:
    """Run a program in a session of its own; past the limit it is killed and the code is `None`."""
    return SmiChild().run(command, limit)


class SmiChild:
    """One program at a time, which can be ended from another thread."""

    def __init__(self) -> None:
        self._pid: Optional[int] = None
        self._ended = False

    def run(self, command: List[str], limit: float) -> Tuple[str, Optional[int]]:
        """Return what it wrote, both streams together, and its exit code; `None` past the limit in seconds."""
        import subprocess  # 9 ms, spent only where there is something to run

        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(os.environ, LC_ALL="C"),
        )
        self._pid = child.pid
        try:
            output, _ = child.communicate(timeout=0.0 if self._ended else limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return "", None
        finally:
            self._pid = None
        return output[:MAX_OUTPUT].decode("utf-8", "replace"), child.returncode

    def finish(self) -> None:
        """Kill what runs, and what would run from now on."""
        self._ended = True
        pid = self._pid
        if pid is not None:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def read_rows(text: str, fields: Mapping[str, str]) -> Tuple[Any, List[str]]:
    """Read a table without a head; lines of another shape are complaints that nvidia-smi mixes into it."""
    rows, stray_lines = [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields) and cells[0].isdigit():
            rows.append({key: read_cell(cells[column]) for column, key in enumerate(fields)})
        elif line.strip() and "No devices were found" not in line:
            stray_lines.append(line.strip())
    return rows, stray_lines


def read_cell(text: str) -> Any:
    """Read a number or a word; `None` for what nvidia-smi does not know."""
    if text.startswith("[") or text in ("N/A", "ERR!", ""):
        return None
    return int(text) if text.isdigit() else text


def read_used(text: str) -> Dict[str, int]:
    """Read the answer to USED: MiB in use by UUID; a line that is no answer is skipped."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def read_apps(text: str) -> List[GpuProcess]:
    """Read the answer to APPS, and look up whose processes these are."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    apps = [row for row in rows if len(row) == 3 and row[1].isdigit()]
    return [
        GpuProcess(gpu=uuid, **describe_user(int(pid), int(memory) if memory.isdigit() else None))
        for uuid, pid, memory in apps[:MAX_APPS]
    ]


def describe_user(pid: int, memory: Optional[int]) -> GpuUser:
    """Describe a process that holds memory of a GPU."""
    user, command = "", ""
    with suppress(OSError):
        uid = os.stat("/proc/%d" % pid).st_uid
        user = _user_name(uid)
        with open("/proc/%d/cmdline" % pid, "rb") as source:
            command = source.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return {"memory": memory, "pid": pid, "user": user, "command": command[:200]}


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid
