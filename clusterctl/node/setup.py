"""The job's `setup`, `before` and `after`: commands in a child process of the agent, and the environment they make.

`python payload.zip stage RUNDIR STAGE LOG REPORT`; reports are JSON lines on the descriptor REPORT: {"doing": text},
{"done": true}, or {"failed": {"reason", "text", "code", "again"}}. What the commands print goes to LOG. When a stage
runs is decided elsewhere (`node/lifecycle`).

Several could make the same environment: runs that start at once, and nodes that share a home. Their lock only saves
work: two that make the same have a directory each, which its claim protects from the other, and the mark of the first
counts. A lock whose holder sends no beat for long is taken over, whatever machine it is on; no clocks of two machines
are compared.
"""

from __future__ import annotations

import glob
import json
import os
import random
import re
import shutil
import site
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..protocol.exit_status import describe_end
from ..protocol.frames import BEAT_INTERVAL
from ..protocol.manifest import tree_hash
from ..protocol.run_paths import RunPaths, WorkdirPaths
from ..protocol.untrusted import MalformedError, Untrusted, parse_object
from .runtime.processes import boot_id, identify, is_alive
from .runtime.reports import write_report
from .runtime.stream import DISK_ERRORS, VerbError
from .state.environments import MARK, Environment, activate_environment, environment_folder, find_environment
from .state.run_files import read_spec
from .state.run_record import parse_identity
from .state.workdir import make_below, make_private, read_bytes, temporary_path, write_new
from .supervise.evidence import is_full
from .supervise.spawn import render_template
from .sync.layout import lay_out, parse_rows, read_tree
from .sync.removal import remove_tree
from .sync.store import Store

if TYPE_CHECKING:
    from ..protocol.messages.files import (
        EnvironmentLock,
        EnvironmentMark,
        HookSpec,
        SetupSpec,
        Spec,
        StepSpec,
    )
    from ..protocol.messages.local import StepFailure


TAIL_LINES = 20  # lines
TAIL_BYTES = 64 << 10  # bytes of a log's end that are looked at
MAX_LOG = 64 << 20  # bytes of a log; beyond, it begins again
REPORT_INTERVAL = 0.5  # seconds
PLAIN = re.compile(r"[\w@%+=:,./-]+\Z", re.ASCII)

# Where programs that make environments are put by their own installers, and no PATH of a plain session leads.
PROGRAM_FOLDERS = (
    "~/.local/bin",
    "~/.cargo/bin",
    "~/bin",
    "~/micromamba/bin",
    "~/miniforge3/bin",
    "~/miniconda3/bin",
    "~/anaconda3/bin",
    "/opt/conda/bin",
    "/opt/miniconda3/bin",
)
PTH_NAME = "clusterctl-outer.pth"
VERSION = re.compile(r"setuptools-(\d+(?:\.\d+)*)[^/]*\.(?:dist|egg)-info\Z")
SETUPTOOLS = (
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
)
HOLDER_TIMEOUT = 30.0  # seconds of looks without a beat after which a holder is gone
POLL_INTERVAL = 0.2  # seconds, soon ten times as many: a thousand nodes may share a home
MAX_POLL = 3.0  # seconds that one look counts: a file system that hung has not shown anybody silent
UNCLAIMED_AFTER = 3600.0  # seconds without a beat after which a directory has no owner
CLAIM_SUFFIX = ".by"
MAX_HOLDER = 200  # characters


class StepFailed(Exception):
    """A command did not do its work; `again` is what a person would type to see it fail."""

    def __init__(self, reason: str, text: str, *, code: str, again: str = "") -> None:
        super().__init__(reason)
        self.reason, self.text, self.code, self.again = reason, text, code, again

    def as_dict(self) -> StepFailure:
        """Render for a report."""
        return {"reason": self.reason, "text": self.text, "code": self.code, "again": self.again}


class StepRunner:
    """Runs commands in a directory, with what they print in a log; `report` gets what is running.

    `code` is that of a command that fails.
    """

    def __init__(
        self,
        log: str,
        folder: str,
        env: Mapping[str, str],
        report: Callable[[str], None],
        code: str = "CC-SETUP-001",
    ) -> None:
        self._code = code
        self._log = log
        self._folder = folder
        self._report = report
        program_folders = ":".join(map(os.path.expanduser, PROGRAM_FOLDERS))
        self._env = {**env, "PATH": "%s:%s" % (env.get("PATH", os.defpath), program_folders)}

    def find(self, step: StepSpec, values: Mapping[str, str]) -> List[str]:
        """Return the words of a step, its program the first of those wished for that is here."""
        programs = [render_template(program, values) for program in step["programs"]]
        available = [
            candidate
            for candidate in programs
            if os.path.isabs(candidate) or shutil.which(candidate, path=self._env["PATH"])
        ]
        program = (available or programs)[0]
        return [program, *(render_template(word, values) for word in step["arguments"])]

    def run(self, argv: Sequence[str], shown: str) -> None:
        """Run one command to its end; raises StepFailed if that is not a good one.

        It writes into the log itself: what it leaves in the background may go on writing there.
        """
        self._report(shown)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        log = os.open(self._log, flags, 0o600)
        try:
            with suppress(OSError):  # on a full disk the commands that fail report it themselves
                os.write(log, ("$ %s\n" % " ".join(map(quote, argv))).encode("utf-8", "surrogateescape"))
            begin = os.fstat(log).st_size
            try:
                child = self._start(argv, log)
            except OSError as error:
                raise self._start_failure(argv[0], error) from None
            code = self._wait(child, log, begin)
            tail = last_lines(log, begin)
        finally:
            os.close(log)
        if code != 0:
            raise self._failure(shown, code, tail)

    def _start(self, argv: Sequence[str], log: int) -> subprocess.Popen[bytes]:
        arguments = [os.fsencode(word) for word in argv]
        program = shutil.which(argv[0], path=self._env["PATH"]) or argv[0]
        return subprocess.Popen(
            arguments,
            executable=program,
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def _wait(self, child: subprocess.Popen[bytes], log: int, begin: int) -> int:
        """Wait for the end of a command, and say now and then what it wrote last."""
        while True:
            try:
                return child.wait(REPORT_INTERVAL)
            except subprocess.TimeoutExpired:
                lines = [line for line in last_lines(log, begin) if line.strip()]
                if lines:
                    self._report(lines[-1])
            if os.fstat(log).st_size > MAX_LOG:
                drop_beginning(log)

    def _failure(self, shown: str, code: int, tail: Sequence[str]) -> StepFailed:
        ending = describe_end(None, -code) if code < 0 else describe_end(code, None)
        disk_full = is_full(self._folder) or any("No space left on device" in line for line in tail)
        disk_hint = ", the disk is full" if disk_full else ""
        reason = "`%s` %s%s" % (shorten(shown), ending, disk_hint)
        return StepFailed(reason, "\n".join(tail), code="CC-DISK-001" if disk_full else self._code)

    def _start_failure(self, program: str, error: OSError) -> StepFailed:
        reason = "cannot start %s: %s" % (program, error.strerror)
        return StepFailed(reason, "PATH is %s" % self._env["PATH"], code="CC-SETUP-004")


def drop_beginning(log: int) -> None:
    """Drop what a log holds but for its end."""
    end = os.pread(log, TAIL_BYTES, os.fstat(log).st_size - TAIL_BYTES)
    os.ftruncate(log, 0)
    os.write(log, b"[more than %d MB stood here, and are dropped]\n" % (MAX_LOG >> 20) + end)


def last_lines(log: int, begin: int) -> List[str]:
    """Return the last lines of a log, as far as they stand behind a place; of a line that was written over, the end."""
    size = os.fstat(log).st_size
    start = max(min(begin, size), size - TAIL_BYTES)
    text = os.pread(log, TAIL_BYTES, start).decode("utf-8", "replace")
    lines = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return lines[1 if start > begin else 0 : -1 if text.endswith("\n") else None][-TAIL_LINES:]


def shorten(text: str, longest: int = 100) -> str:
    """Put a command into a line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def quote(word: str) -> str:
    """Write a word for a shell."""
    return word if PLAIN.match(word) else "'%s'" % word.replace("'", "'\"'\"'")


class SetupLock:
    """A file that names its holder and changes with each beat."""

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._token = os.urandom(8).hex()
        self._holder, self._boot_id, self._identity = holder, boot_id(), identify(os.getpid())
        self._released = threading.Event()
        self._beats = 0
        self._claim_path = ""
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def acquire(self, is_made: Callable[[], bool], on_wait: Callable[[str], None]) -> bool:
        """Wait until it is ours; False as soon as another process has made it. `on_wait` gets the holder."""
        last_content: Optional[bytes] = None
        silent_seconds, checked_at, polls = 0.0, time.monotonic(), 0
        while os.path.lexists(self._path) or not self._try_acquire():
            if is_made():
                return False
            polls += 1
            content, now = read_bytes(self._path), time.monotonic()
            # what a look may take beyond that is not the holder's fault
            silent_seconds += min(now - checked_at, MAX_POLL)
            checked_at = now
            if content is not None and content != last_content:
                on_wait(_parse_fields(content).text("who", MAX_HOLDER) or "another run")
                last_content, silent_seconds = content, 0.0
            if content is not None and (_has_died(_parse_fields(content)) or silent_seconds > HOLDER_TIMEOUT):
                self._remove_if_unchanged(content)
            else:
                time.sleep(POLL_INTERVAL * min(polls, 10) * random.uniform(0.8, 1.2))
        self._thread.start()
        return not is_made()

    def claim(self, folder: str) -> None:
        """Mark a directory as being worked on, for as long as we hold the lock or have lost it."""
        write_new(folder + CLAIM_SUFFIX, self._content())
        self._claim_path = folder + CLAIM_SUFFIX

    def release(self) -> None:
        """Release the directory."""
        self._released.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._claim_path:
            with suppress(OSError):
                os.unlink(self._claim_path)
        content = read_bytes(self._path)
        if content is not None and _parse_fields(content).text("token") == self._token:
            self._remove_if_unchanged(content)

    def _try_acquire(self) -> bool:
        temporary = temporary_path(self._path)
        write_new(temporary, self._content())
        try:
            os.link(temporary, self._path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def _content(self) -> bytes:
        lock: EnvironmentLock = {
            "token": self._token,
            "who": self._holder,
            "boot_id": self._boot_id,
            "pid": self._identity.pid,
            "starttime": self._identity.starttime,
            "beats": self._beats,
        }
        return json.dumps(lock).encode("utf-8")

    def _beat(self) -> None:
        """Change the lock now and then, as long as it is ours, and the claim in any case."""
        while not self._released.wait(BEAT_INTERVAL):
            self._beats += 1
            with suppress(OSError):
                if self._claim_path:
                    os.utime(self._claim_path)
                if _parse_fields(read_bytes(self._path) or b"").text("token") == self._token:
                    temporary = temporary_path(self._path)
                    write_new(temporary, self._content())
                    os.replace(temporary, self._path)

    def _remove_if_unchanged(self, content: bytes) -> None:
        """Remove the lock if it is still the one that was looked at; of several who try, one has it in his hand."""
        temporary = temporary_path(self._path)
        with suppress(FileNotFoundError):
            os.rename(self._path, temporary)
            if read_bytes(temporary) != content:
                with suppress(FileExistsError):
                    os.link(temporary, self._path)
            os.unlink(temporary)


def find_unclaimed(folder: str) -> Iterator[str]:
    """Yield the directories that no process works in, by the clock of the file system alone."""
    probe = os.path.join(folder, os.urandom(8).hex() + ".new")
    write_new(probe, b"")
    now = os.stat(probe).st_mtime
    os.unlink(probe)
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            claim = entry.path + CLAIM_SUFFIX
            fields = _parse_fields(read_bytes(claim) or b"")
            if not fields or _has_died(fields) or now - _modified_at(claim) > UNCLAIMED_AFTER:
                yield entry.path


def _modified_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _parse_fields(content: bytes) -> Untrusted:
    try:
        return parse_object(content)
    except MalformedError:
        return Untrusted({})


def _has_died(fields: Untrusted) -> bool:
    """Whether the holder was a process of this machine that is gone."""
    identity = {"pid": fields.integer("pid"), "starttime": fields.integer("starttime")}
    return fields.text("boot_id") == boot_id() and not is_alive(parse_identity(identity))


class Setup:
    """One setup on this node."""

    def __init__(self, rundir: str, spec: Spec, report: int) -> None:
        self._rundir = rundir
        self._spec = spec
        self._setup_spec: SetupSpec = spec["setup"]
        self._workdir = os.path.dirname(os.path.dirname(os.path.dirname(rundir)))
        self._folder = environment_folder(self._workdir, self._setup_spec["content"])
        self._report = report
        self._reported = ""
        self._step = 0

    def provide(self) -> Environment:
        """Return the environment, made here or by another process that was waited for."""
        make_below(make_private(WorkdirPaths(self._workdir).environments), os.path.basename(self._folder))
        holder = "%s on %s" % (self._spec["run"], self._spec["node"])
        lock = SetupLock(os.path.join(self._folder, "lock"), holder)
        try:
            if lock.acquire(lambda: find_environment(self._folder) is not None, self._report_wait):
                # waiting for others was no time of ours
                write_report(self._report, {"doing": "", "begins": True})
                self._make(lock)
        except (StepFailed, OSError):
            if (
                find_environment(self._folder) is None
            ):  # else another process was quicker: this one counted as gone
                raise
        finally:
            lock.release()
        environment = find_environment(self._folder)
        if environment is None:
            shown = self._setup_spec["steps"][0]["shown"]
            raise StepFailed(
                "the steps created no interpreter at bin/python", "", code="CC-SETUP-001", again=shown
            )
        return environment

    def _report_wait(self, holder: str) -> None:
        self._report_doing("waiting for run %s, which builds the same environment" % holder)

    def _report_doing(self, text: str) -> None:
        if text != self._reported:
            self._reported = text
            write_report(self._report, {"doing": text})

    def _report_step(self, text: str) -> None:
        self._report_doing("step %d of %d: %s" % (self._step, len(self._setup_spec["steps"]), text))

    def _make(self, lock: SetupLock) -> None:
        """Lay the files out, run the steps, and mark what they made; nothing half made stays."""
        self._remove_leftovers()
        token = os.urandom(4).hex()
        prefix = os.path.join(self._folder, token)
        lock.claim(prefix)
        try:
            files = self._write_files()
            self._run_steps(prefix, files)
            self._write_mark(prefix, token)
        except BaseException:
            remove_if_present(prefix)
            raise
        remove_if_present(files)

    def _remove_leftovers(self) -> None:
        """Remove what others have left half made here, and a mark whose interpreter is gone."""
        for path in find_unclaimed(self._folder):
            if find_environment(self._folder) is None:
                remove_if_present(path)
                with suppress(FileNotFoundError):
                    os.unlink(path + CLAIM_SUFFIX)
        if find_environment(self._folder) is None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, MARK))

    def _write_files(self) -> str:
        """Make the files from the store, and read them back."""
        rows = parse_rows(self._setup_spec["rows"])
        target = RunPaths(self._rundir).setup_files
        remove_if_present(target)
        with Store(self._workdir) as store:
            try:
                lay_out(store, os.fsencode(target), rows)
            except FileNotFoundError as error:
                raise VerbError(
                    "CC-SYNC-008", "a file of the setup is not in the store: %s" % error.filename
                ) from None
            written = read_tree(os.fsencode(target))
            if tree_hash(written) != tree_hash(rows):
                for row in rows:
                    store.discard_if_wrong(row.content)
                raise VerbError("CC-SYNC-003", "the setup files are not what was sent; launch again")
        return target

    def _run_steps(self, prefix: str, files: str) -> None:
        env = dict(os.environ, CONDA_ALWAYS_YES="true", MAMBA_ALWAYS_YES="true")
        if self._setup_spec["kind"]:
            activate_environment(env, prefix, self._setup_spec["kind"])
            # a pip.conf may set other targets
            env.update(PIP_USER="0", PYTHONNOUSERSITE="1")
            for key in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"):
                env.pop(key, None)
        values = {"environment": prefix, "python": self._spec["python"]}
        steps = StepRunner(RunPaths(self._rundir).setup_log, files, env, self._report_step)
        commands: List[str] = []
        for step in self._setup_spec["steps"]:
            self._step = len(commands) + 1
            argv = steps.find(step, values)
            again = steps.find(step, {**values, "environment": "try"})
            commands.append(" ".join(map(quote, again)))
            try:
                steps.run(argv, step["shown"])
            except StepFailed as error:
                preamble = ["cd %s" % quote(files), "PATH=$PWD/try/bin:$PATH"]
                error.again = " && ".join([*preamble, *commands])
                raise
            if len(commands) == 1 and self._setup_spec["outer"]:
                link_outer_packages(prefix)  # before anything is installed: what is there need not be

    def _write_mark(self, prefix: str, token: str) -> None:
        """Publish it; of two that are equal the first counts."""
        flush(self._folder)
        mark: EnvironmentMark = {
            "token": token,
            "kind": self._setup_spec["kind"],
            "content": self._setup_spec["content"],
            "run": self._spec["run"],
            "node": self._spec["node"],
            "time": time.time(),
            "steps": [step["shown"] for step in self._setup_spec["steps"]],
        }
        path = os.path.join(self._folder, MARK)
        temporary = temporary_path(path)
        write_new(temporary, json.dumps(mark, indent=1).encode("utf-8"))
        try:
            os.link(temporary, path)
        except FileExistsError:
            remove_if_present(prefix)
        finally:
            os.unlink(temporary)


def link_outer_packages(prefix: str) -> None:
    """Lead an environment to the packages of the Python that made it, its own first, and hide none of them."""
    outer = outer_venv()
    if outer:
        lines = ["import site; site.addsitedir(%r)\n" % folder for folder in site_folders(outer)]
        for folder in site_folders(prefix):
            with open(os.path.join(folder, PTH_NAME), "w", encoding="utf-8") as file:
                file.write("".join(lines))
    drop_old_setuptools(prefix)


def outer_venv() -> str:
    """Return the venv of this interpreter, whose packages a venv made by it does not see; empty if it is of none."""
    outer = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    return outer if os.path.exists(os.path.join(outer, "pyvenv.cfg")) else ""


def drop_old_setuptools(prefix: str) -> None:
    """Remove the setuptools that `venv` puts into an environment where it hides a newer one.

    What is installed may need the newer one, torch does; without an index pip could get it from nowhere else.
    """
    outer = outer_venv()
    outer_folders = [*(site_folders(outer) if outer else ()), *site.getsitepackages([sys.base_prefix])]
    inner_version, outer_version = newest_setuptools(site_folders(prefix)), newest_setuptools(outer_folders)
    if not inner_version < outer_version or inner_version == ():
        return
    for folder in site_folders(prefix):
        for name in SETUPTOOLS:
            for path in glob.glob(os.path.join(glob.escape(folder), name)):
                if os.path.isdir(path):
                    remove_tree(path)
                else:
                    os.unlink(path)


def newest_setuptools(folders: List[str]) -> Tuple[int, ...]:
    """Return the newest version of setuptools in some folders; nothing if none has it."""
    matches = [
        VERSION.search(name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
    ]
    versions = [tuple(map(int, match[1].split("."))) for match in matches if match]
    return max(versions, default=())


def site_folders(prefix: str) -> List[str]:
    """Return the folders of packages below a prefix, for this version of Python."""
    version = "python%d.%d" % sys.version_info[:2]
    by_lib = [
        glob.glob(os.path.join(glob.escape(prefix), lib, version, "site-packages"))
        for lib in ("lib", "lib64")
    ]
    return sorted({os.path.realpath(folder) for folders in by_lib for folder in folders})


def flush(folder: str) -> None:
    """Have a file system write what it holds, so that no power cut leaves a mark without what it stands for."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ctypes.CDLL(None).syncfs(descriptor)
        finally:
            os.close(descriptor)


def remove_if_present(path: str) -> None:
    """Remove a directory, if it is there and as far as that goes; `clean` tries again."""
    if os.path.lexists(path):
        remove_tree(path)


def main(arguments: List[str]) -> None:
    """Run one stage of a job: RUNDIR STAGE LOG REPORT."""
    rundir, stage, log, report = arguments[0], arguments[1], arguments[2], int(arguments[3])
    os.set_inheritable(report, False)
    spec = read_spec(rundir)
    assert spec is not None  # the agent, which starts this, has read it
    try:
        if stage == "setup":
            Setup(rundir, spec, report).provide()
        else:
            run_commands(rundir, spec["before"] if stage == "before" else spec["after"], log, report)
        write_report(report, {"done": True})
    except StepFailed as error:
        write_report(report, {"failed": error.as_dict()})
    except VerbError as error:
        report_error(report, str(error), error.code)
    except OSError as error:
        text = "%s: %s" % (os.fsdecode(error.filename or "the disk"), error.strerror)
        report_error(report, text, "CC-DISK-001" if error.errno in DISK_ERRORS else "CC-DISK-002")


def report_error(report: int, text: str, code: str) -> None:
    """Report what failed where no command did."""
    write_report(report, {"failed": {"reason": text, "text": text, "code": code, "again": ""}})


def run_commands(rundir: str, hook: HookSpec, log: str, report: int) -> None:
    """Run the commands of `before` or `after` in the run's code; the first that fails is the last."""
    runner = StepRunner(
        log,
        RunPaths(rundir).code,
        os.environ,
        lambda text: write_report(report, {"doing": text}),
        "CC-SETUP-005",
    )
    for step in hook["steps"]:
        runner.run(runner.find(step, {}), step["shown"])
