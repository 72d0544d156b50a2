"""Makes an environment (child process), its lock.

Who makes an environment, where several could: runs that start at once, and nodes that share a home.

The lock only saves work. Two who make the same have a directory each, which its claim protects from the other, and the
mark of the first counts. A lock whose holder says nothing for long is taken from him, whatever machine he is on; no
clocks of two machines are compared.

The setup of a run: makes the environment of the job, in a process of its own, and tells the agent how it goes.

`python payload.zip setup RUNDIR REPORT`; reports are JSON lines on the descriptor REPORT: {"doing": text},
{"done": true}, or {"failed": {"reason", "text", "code", "again"}}. What the steps print goes to setup.log.
"""

from __future__ import annotations

import glob
import json
import os
import random
import re
import site
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.processes import alive, boot_id, identify, identity_of
from ..runtime.stream import DISK_ERRORS, VerbError
from ..state.environments import MARK, Made, enter, find_made, folder_of
from ..state.workdir import aside_of, make_below, read_bytes, read_json, write_new
from ..supervise.spawn import tell
from ..sync.layout import Layout, parse_rows, read_tree, tree_hash
from ..sync.store import Store, remove_tree
from .commands import StepFailed, Steps, quote

NAME = "clusterctl-outer.pth"
VERSION = re.compile(r"setuptools-(\d+(?:\.\d+)*)[^/]*\.(?:dist|egg)-info\Z")
SETUPTOOLS = (
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
)


def show_outer(prefix: str) -> None:
    """Lead an environment to the packages of the Python that made it, its own first, and hide none of them."""
    outer = outer_venv()
    if outer:
        lines = ["import site; site.addsitedir(%r)\n" % folder for folder in sites(outer)]
        for folder in sites(prefix):
            with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
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
    shown = [*(sites(outer) if outer else ()), *site.getsitepackages([sys.base_prefix])]
    mine, theirs = newest(sites(prefix)), newest(shown)
    if not mine < theirs or mine == ():
        return
    for folder in sites(prefix):
        for name in SETUPTOOLS:
            for path in glob.glob(os.path.join(glob.escape(folder), name)):
                if os.path.isdir(path):
                    remove_tree(path, lambda: None, lambda *_: None)
                else:
                    os.unlink(path)


def newest(folders: List[str]) -> Tuple[int, ...]:
    """Return the newest version of setuptools in some folders; nothing if none has it."""
    found = [
        VERSION.search(name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
    ]
    versions = [tuple(map(int, match[1].split("."))) for match in found if match]
    return max(versions, default=())


def sites(prefix: str) -> List[str]:
    """Return the folders of packages below a prefix, for this version of Python."""
    version = "python%d.%d" % sys.version_info[:2]
    found = [
        glob.glob(os.path.join(glob.escape(prefix), lib, version, "site-packages"))
        for lib in ("lib", "lib64")
    ]
    return sorted({os.path.realpath(folder) for folders in found for folder in folders})


BEAT = 2.0
SILENT = 30.0  # seconds of looks without a beat after which a holder is gone
LOOK = 0.2  # seconds, soon ten times as many: a thousand nodes may share a home
LONGEST_LOOK = 3.0  # seconds that one look counts: a file system that hung has not shown anybody silent
FORGOTTEN = 3600.0  # seconds without a beat after which a directory is nobody's
CLAIM = ".by"
LONGEST_WHO = 200  # characters


class SetupLock:
    """A file that names its holder and changes with each beat."""

    def __init__(self, path: str, who: str) -> None:
        self._path = path
        self._token = os.urandom(8).hex()
        me = identify(os.getpid()).as_dict()
        self._words = {"token": self._token, "who": who, "boot_id": boot_id(), **me}
        self._over = threading.Event()
        self._beats = 0
        self._claimed = ""
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def take(self, made: Callable[[], bool], waits: Callable[[str], None]) -> bool:
        """Wait until it is ours; False as soon as somebody has made what it is about. `waits` hears for whom."""
        seen: Optional[bytes] = None
        silent, looked, looks = 0.0, time.monotonic(), 0
        while os.path.lexists(self._path) or not self._try():
            if made():
                return False
            looks += 1
            content, now = read_bytes(self._path), time.monotonic()
            silent += min(
                now - looked, LONGEST_LOOK
            )  # what a look may take beyond that is not the holder's fault
            looked = now
            if content is not None and content != seen:
                waits(_read(content).text("who", LONGEST_WHO) or "another run")
                seen, silent = content, 0.0
            if content is not None and (_has_died(_read(content)) or silent > SILENT):
                self._take_away(content)
            else:
                time.sleep(LOOK * min(looks, 10) * random.uniform(0.8, 1.2))
        self._thread.start()
        return not made()

    def claim(self, folder: str) -> None:
        """Say of a directory that we are at work there, for as long as we hold the lock or have lost it."""
        write_new(folder + CLAIM, self._content())
        self._claimed = folder + CLAIM

    def drop(self) -> None:
        """Let others have it."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._claimed:
            with suppress(OSError):
                os.unlink(self._claimed)
        content = read_bytes(self._path)
        if content is not None and _read(content).text("token") == self._token:
            self._take_away(content)

    def _try(self) -> bool:
        aside = aside_of(self._path)
        write_new(aside, self._content())
        try:
            os.link(aside, self._path)
        except FileExistsError:
            return False
        finally:
            os.unlink(aside)
        return True

    def _content(self) -> bytes:
        return json.dumps({**self._words, "beats": self._beats}).encode("utf-8")

    def _beat(self) -> None:
        """Change the lock now and then, as long as it is ours, and the claim in any case."""
        while not self._over.wait(BEAT):
            self._beats += 1
            with suppress(OSError):
                if self._claimed:
                    os.utime(self._claimed)
                if _read(read_bytes(self._path) or b"").text("token") == self._token:
                    aside = aside_of(self._path)
                    write_new(aside, self._content())
                    os.replace(aside, self._path)

    def _take_away(self, content: bytes) -> None:
        """Remove the lock if it is still the one that was looked at; of several who try, one has it in his hand."""
        aside = aside_of(self._path)
        with suppress(FileNotFoundError):
            os.rename(self._path, aside)
            if read_bytes(aside) != content:
                with suppress(FileExistsError):
                    os.link(aside, self._path)
            os.unlink(aside)


def unclaimed(folder: str) -> Iterator[str]:
    """Give the directories that nobody is at work in, by the clock of the file system alone."""
    probe = os.path.join(folder, os.urandom(8).hex() + ".new")
    write_new(probe, b"")
    now = os.stat(probe).st_mtime
    os.unlink(probe)
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            claim = entry.path + CLAIM
            words = _read(read_bytes(claim) or b"")
            if not words or _has_died(words) or now - _time_of(claim) > FORGOTTEN:
                yield entry.path


def _time_of(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _read(content: bytes) -> Untrusted:
    try:
        return parse_object(content)
    except MalformedError:
        return Untrusted({})


def _has_died(words: Untrusted) -> bool:
    """Whether the holder was a process of this machine that is gone."""
    who = {"pid": words.integer("pid"), "starttime": words.integer("starttime")}
    return words.text("boot_id") == boot_id() and not alive(identity_of(who))


LOG = "setup.log"
FILES = "setup"  # in the run's directory: what the steps read


def main(arguments: List[str]) -> None:
    """Make what the run in a directory needs, or find it made."""
    rundir, report = arguments[0], int(arguments[1])
    os.set_inheritable(report, False)
    spec = read_json(os.path.join(rundir, "spec.json")) or {}
    try:
        Setup(rundir, spec, report).provide()
        tell(report, {"done": True})
    except StepFailed as error:
        tell(report, {"failed": error.as_dict()})
    except VerbError as error:
        tell(report, {"failed": {"reason": str(error), "text": str(error), "code": error.code, "again": ""}})
    except OSError as error:
        text = "%s: %s" % (os.fsdecode(error.filename or "the disk"), error.strerror)
        code = "CC-DISK-001" if error.errno in DISK_ERRORS else "CC-DISK-002"
        tell(report, {"failed": {"reason": text, "text": text, "code": code, "again": ""}})


class Setup:
    """One setup on this node."""

    def __init__(self, rundir: str, spec: Dict[str, Any], report: int) -> None:
        self._rundir = rundir
        self._spec = spec
        self._wish: Dict[str, Any] = spec["setup"]
        self._workdir = os.path.dirname(os.path.dirname(os.path.dirname(rundir)))
        self._folder = folder_of(self._workdir, self._wish["content"])
        self._report = report
        self._said = ""

    def provide(self) -> Made:
        """Return the environment, made by us or by somebody whom we waited for."""
        make_below(self._workdir, "envs", os.path.basename(self._folder))
        who = "%s on %s" % (self._spec["run"], self._spec["node"])
        lock = SetupLock(os.path.join(self._folder, "lock"), who)
        try:
            if lock.take(lambda: find_made(self._folder) is not None, self._waits):
                tell(self._report, {"doing": "", "begins": True})  # waiting for others was no time of ours
                self._make(lock)
        except (StepFailed, OSError):
            if find_made(self._folder) is None:  # else somebody else was quicker, and took us for gone
                raise
        finally:
            lock.drop()
        found = find_made(self._folder)
        if found is None:
            shown = self._wish["steps"][0]["shown"]
            raise StepFailed(
                "the steps have left no interpreter at bin/python", "", code="CC-SETUP-001", again=shown
            )
        return found

    def _waits(self, who: str) -> None:
        self._say("waits for run %s, which makes the same" % who)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            tell(self._report, {"doing": text})

    def _make(self, lock: SetupLock) -> None:
        """Lay the files out, run the steps, and mark what they made; nothing half made stays."""
        self._sweep()
        token = os.urandom(4).hex()
        prefix = os.path.join(self._folder, token)
        lock.claim(prefix)
        try:
            files = self._lay_out()
            self._run_steps(prefix, files)
            self._mark(prefix, token)
        except BaseException:
            clear(prefix)
            raise
        clear(files)

    def _sweep(self) -> None:
        """Remove what others have left half made here, and a mark whose interpreter is gone."""
        for path in unclaimed(self._folder):
            if find_made(self._folder) is None:
                clear(path)
                with suppress(FileNotFoundError):
                    os.unlink(path + CLAIM)
        if find_made(self._folder) is None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, MARK))

    def _lay_out(self) -> str:
        """Make the files from the store, and read them back."""
        rows = parse_rows(self._wish["rows"])
        target = os.path.join(self._rundir, FILES)
        clear(target)
        with Store(self._workdir) as store:
            try:
                Layout(store, os.fsencode(target), _nothing).make(rows)
            except FileNotFoundError as error:
                raise VerbError(
                    "CC-SYNC-008", "a file of the setup is not in the store: %s" % error.filename
                ) from None
            found = read_tree(os.fsencode(target), _nothing)
            if tree_hash(found) != tree_hash(rows):
                for row in rows:
                    store.discard_if_wrong(row.content)
                raise VerbError("CC-SYNC-003", "the files of the setup are not what was sent; launch again")
        return target

    def _run_steps(self, prefix: str, files: str) -> None:
        env = dict(os.environ, CONDA_ALWAYS_YES="true", MAMBA_ALWAYS_YES="true")
        if self._wish["kind"]:
            enter(env, prefix, self._wish["kind"])
            env.update(
                PIP_USER="0", PYTHONNOUSERSITE="1"
            )  # what pip.conf says elsewhere would lead it astray
            for key in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"):
                env.pop(key, None)
        places = {"environment": prefix, "python": self._spec["python"]}
        steps = Steps(os.path.join(self._rundir, LOG), files, env, self._say)
        done: List[str] = []
        for wish in self._wish["steps"]:
            argv = steps.find(wish, places)
            again = steps.find(wish, {**places, "environment": "try"})
            done.append(" ".join(map(quote, again)))
            try:
                steps.run(argv, wish["shown"])
            except StepFailed as error:
                begin = ["cd %s" % quote(files), "PATH=$PWD/try/bin:$PATH"]
                error.again = " && ".join([*begin, *done])
                raise
            if len(done) == 1 and self._wish["outer"]:
                show_outer(prefix)  # before anything is installed: what is there need not be

    def _mark(self, prefix: str, token: str) -> None:
        """Let others see it; of two who have made the same the first counts."""
        flush(self._folder)
        steps = [step["shown"] for step in self._wish["steps"]]
        about = {"run": self._spec["run"], "node": self._spec["node"], "time": time.time(), "steps": steps}
        words = {"token": token, "kind": self._wish["kind"], "content": self._wish["content"], **about}
        path = os.path.join(self._folder, MARK)
        aside = aside_of(path)
        write_new(aside, json.dumps(words, indent=1).encode("utf-8"))
        try:
            os.link(aside, path)
        except FileExistsError:
            clear(prefix)
        finally:
            os.unlink(aside)


def flush(folder: str) -> None:
    """Have a file system write what it holds, so that no power cut leaves a mark without what it stands for."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ctypes.CDLL(None).syncfs(descriptor)
        finally:
            os.close(descriptor)


def clear(path: str) -> None:
    """Remove a directory, if it is there and as far as that goes; `clean` tries again."""
    if os.path.lexists(path):
        remove_tree(path, _nothing, lambda *_: None)


def _nothing() -> None:
    """Count nothing: nobody asks how far it is."""
