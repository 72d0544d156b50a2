"""The setup of a run: makes the environment of the job, in a process of its own, and tells the agent how it goes.

`python payload.zip setup RUNDIR REPORT`; reports are JSON lines on the descriptor REPORT: {"doing": text},
{"done": true}, or {"failed": {"reason", "text", "code", "again"}}. What the steps print goes to setup.log.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, Dict, List

from .chore import tell
from .environments import MARK, Made, enter, find_made, folder_of
from .outer import show_outer
from .removal import remove_tree
from .setup_lock import CLAIM, SetupLock, unclaimed
from .steps import StepFailed, Steps, quote
from .store import Store
from .tree import Layout, parse_rows, read_tree, tree_hash
from .wire import DISK_ERRORS, VerbError
from .workdir import aside_of, make_below, read_json, write_new

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
