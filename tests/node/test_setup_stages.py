"""The setup of a run on one node: made once, whole or not at all, and nothing of it outlives the run."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from session import BOOT, PAYLOAD
from waiting import wait_until
from wheels import make_wheel

Make = Callable[..., NodeRun]

PRINTS = "import json, os, sys, tool; print(json.dumps([sys.prefix, tool.VERSION, os.environ['PATH']]))"
PIP = ["install", "--no-input", "--disable-pip-version-check", "--no-index", "--find-links", "wheels"]
ENVIRONMENT = {"fill": "environment"}


def step(program: Any, *words: Any) -> dict[str, Any]:
    """One step as a plan renders it."""
    return {"programs": [program], "arguments": list(words), "shown": " ".join(str(word) for word in words)}


def shell(text: str) -> dict[str, Any]:
    """A step of `run`."""
    return {"programs": ["sh"], "arguments": ["-e", "-c", text], "shown": text}


# Without a pip of its own, which takes seconds: the one here installs into it.
VENV = (
    step([{"fill": "python"}], "-m", "venv", "--without-pip", [ENVIRONMENT]),
    step(
        [{"fill": "python"}],
        "-m",
        "pip",
        "--python",
        [ENVIRONMENT, "/bin/python"],
        *PIP,
        "-r",
        "requirements.txt",
    ),
)


def wish(run: NodeRun, files: Path | None, *steps: dict[str, Any], **changes: Any) -> None:
    """Give a run a setup, and put its files into the node's store."""
    rows = []
    for path in sorted(files.rglob("*")) if files else ():
        if path.is_file():
            content = path.read_bytes()
            sha = hashlib.sha256(content).hexdigest()
            stored = run.workdir / "store" / sha[:2] / sha
            for folder in (stored.parent.parent, stored.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            stored.write_bytes(content)
            rows.append([path.relative_to(files).as_posix(), "file", 0o644, sha, len(content)])
    content = hashlib.sha256(json.dumps([rows, steps]).encode()).hexdigest()
    made_of = {"content": content, "kind": "venv", "outer": False, "steps": list(steps), "rows": rows}
    run.spec["setup"] = {**made_of, "time_limit": 3600.0, **changes}


def begin(run: NodeRun, stage: str = "setup", **options: Any) -> None:
    """Start a run and order a stage of its job, as a client that has sent the files."""
    session = run.start({"KEY": "s3cret-word"}, **options)
    run.hear("started")
    session.send({"do": stage})


def provide(run: NodeRun, *, answer: str = "environment") -> dict[str, Any]:
    """Start a run and have it make its environment."""
    begin(run)
    assert [event["made"] for event in run.heard if event.get("event") == "setup"] == [False]
    return run.hear(answer)


def finish(run: NodeRun) -> dict[str, Any]:
    """Start the ranks when the gate is ready, and wait for the end of the run."""
    run.hear("ready")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": run.port})
    return run.ended()


def share(run: NodeRun, other: NodeRun) -> None:
    """Set the work directory and the setup of another run in a spec."""
    run.workdir, run.spec["setup"] = other.workdir, other.spec["setup"]
    run.code.mkdir(parents=True, exist_ok=True)
    for folder in (run.rundir.parent, run.rundir):
        folder.chmod(0o700)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A requirements file and a wheelhouse with the one wheel that it names."""
    folder = tmp_path / "files"
    make_wheel(
        folder / "wheels", "tool", "1.5", "VERSION = '1.5'\ndef main(): print('tool speaks')\n", script="tool"
    )
    (folder / "requirements.txt").write_text("tool==1.5\n")
    return folder


def test_a_venv_is_made_once(node: Make, files: Path) -> None:
    """The first run makes it, without a network, and runs in it; the second finds it there and waits for nothing."""
    first = node(PRINTS).use_stub()
    wish(first, files, *VENV, shell("tool; command -v tool"))
    provide(first)
    state = finish(first)
    prefix, version, path = json.loads(first.output(0))
    second = node(PRINTS).use_stub()
    share(second, first)
    second.start()
    made = second.hear("setup")
    second.hear("ready")
    second.session.close()  # type: ignore[union-attr]  # it was just started
    envs = first.workdir / "envs"
    log = (first.rundir / "setup.log").read_text()

    assert state["state"] == "SUCCEEDED", (state, first.output(0, "stderr"))
    assert (Path(prefix).parent.parent, version) == (envs, "1.5")
    assert path.split(":")[0] == f"{prefix}/bin"
    assert "tool speaks" in log
    assert f"{prefix}/bin/tool" in log
    assert made["made"] is True
    assert [entry.name for entry in envs.iterdir()] == [Path(prefix).parent.name]
    assert sorted(entry.name for entry in Path(prefix).parent.iterdir()) == sorted(
        [Path(prefix).name, "made.json"]
    )
    assert not (first.rundir / "setup").exists()


def test_a_step_that_fails(node: Make, files: Path) -> None:
    """The node says which step and what it said; nothing half made is left, secrets are hidden, the state tells."""
    run = node().use_stub()
    begun = step("mkdir", "-p", [ENVIRONMENT, "/bin"])
    wish(run, files, begun, shell("ls ..; echo begin; echo it is s3cret-word >&2; exit 7"))
    begin(run)
    failed = run.hear("setup_failed")
    state = run.ended()
    name = next((run.workdir / "envs").iterdir())
    log = (run.rundir / "setup.log").read_text()

    assert failed["why"] == "setup: `ls ..; echo begin; echo it is [secret] >&2; exit 7` exited with 7"
    assert failed["text"].splitlines()[-2:] == ["begin", "it is [secret]"]
    assert failed["code"] == "CC-SETUP-001"
    assert f"$ mkdir -p '{name}/" in log
    assert failed["again"].startswith(
        f"cd '{run.rundir}/setup' && PATH=$PWD/try/bin:$PATH && mkdir -p try/bin && sh"
    )
    assert (run.rundir / "setup" / "requirements.txt").exists()
    assert (state["state"], "exited with 7" in state["reason"]) == ("FAILED_SETUP", True)
    assert list(name.iterdir()) == []
    assert run.event("setup_failed")["text"] == failed["text"]


def test_a_venv_of_a_venv(node: Make, tmp_path: Path) -> None:
    """It sees the packages of the venv that makes it, and sees them before the next step, which may install."""
    outer = tmp_path / "outer"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", outer], check=True)
    site = next(outer.glob("lib/python*/site-packages"))
    (site / "outerpkg.py").write_text("")
    python = str(outer / "bin" / "python")
    run = node("import outerpkg, sys; print(sys.prefix)", python=python).use_stub()
    make = step([{"fill": "python"}], "-m", "venv", "--without-pip", "--system-site-packages", [ENVIRONMENT])
    wish(run, None, make, shell("python -c 'import outerpkg'"), outer=True)
    begin(run, command=(python, "-c", BOOT))
    state = finish(run)

    assert state["state"] == "SUCCEEDED", run.output(0, "stderr")
    assert run.output(0).startswith(str(run.workdir / "envs"))


@pytest.mark.parametrize(("bundled", "nodes", "left"), [("65.5", "80.9", "80.9"), ("82.0", "80.9", "82.0")])
def test_what_venv_brings_hides_nothing_newer(
    node: Make, tmp_path: Path, bundled: str, nodes: str, left: str
) -> None:
    """The node's torch needs a newer setuptools than the venv has: what needs torch installs without an index."""
    outer, wheels, files = tmp_path / "outer", tmp_path / "wheels", tmp_path / "files"
    for version in (bundled, nodes):
        package = tmp_path / version / "setuptools" / "__init__.py"
        package.parent.mkdir(parents=True)
        package.write_text(f"__version__ = {version!r}")
    old, new = (make_wheel(wheels, "setuptools", one, tree=tmp_path / one) for one in (bundled, nodes))
    torch = make_wheel(wheels, "torchlike", "2.13", requires="setuptools>=77.0.3")
    make_wheel(files / "wheels", "vision", "1.0", "import torchlike", requires="torchlike==2.13")
    (files / "requirements.txt").write_text("vision==1.0\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", outer], check=True)
    site = next(outer.glob("lib/python*/site-packages"))
    for wheel in (new, torch):
        zipfile.ZipFile(wheel).extractall(site)
    python = str(outer / "bin" / "python")
    make = (
        f'{python} -m venv --without-pip --system-site-packages "$0" && '
        f'{python} -m zipfile -e {old} "$0"/lib/python*/site-packages'
    )
    script = "import importlib.metadata as m, setuptools as s, vision; print(m.version('setuptools'), s.__version__)"
    run = node(script, python=python).use_stub()
    first = {"programs": ["sh"], "arguments": ["-c", make, [ENVIRONMENT]], "shown": "venv"}
    wish(run, files, first, {**VENV[1], "programs": [sys.executable]}, outer=True)
    begin(run, command=(python, "-c", BOOT))
    state = finish(run)

    assert state["state"] == "SUCCEEDED", run.output(0, "stderr")
    assert run.output(0).split() == [left, left]


STAND_IN = """#!/bin/sh
# stands in for micromamba: makes what a conda environment is known by
echo "$@"
mkdir -p "$4/bin" "$4/conda-meta"
ln -s "$REAL" "$4/bin/python"
"""


def test_conda_by_a_stand_in(node: Make, tmp_path: Path) -> None:
    """Of several programs the one that is there is called, here a stand-in; commands and job are inside."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mamba").write_text(STAND_IN)
    (tmp_path / "bin" / "mamba").chmod(0o755)
    script = "import os; print(os.environ['CONDA_PREFIX'], os.environ.get('VIRTUAL_ENV'))"
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "REAL": sys.executable, "CONDA_PREFIX": "/opt/conda"}
    run = node(script, env=env).use_stub()
    make = {
        **step("", "env", "create", "--prefix", [ENVIRONMENT]),
        "programs": ["no-such-mamba", "mamba", "sh"],
    }
    wish(run, None, make, shell('echo "in $CONDA_PREFIX"'), kind="conda")
    provide(run)
    state = finish(run)
    prefix = next(path.parent for path in (run.workdir / "envs").glob("*/*/conda-meta"))

    assert state["state"] == "SUCCEEDED", run.output(0, "stderr")
    assert run.output(0) == f"{prefix} None\n"
    assert f"in {prefix}\n" in (run.rundir / "setup.log").read_text()


def test_a_program_that_is_not_there(node: Make) -> None:
    """The node says which, and where it has looked."""
    run = node().use_stub()
    wish(run, None, step("no-such-uv", "venv"))
    failed = provide(run, answer="setup_failed")
    run.ended()

    assert (failed["code"], failed["why"]) == (
        "CC-SETUP-004",
        "setup: cannot start no-such-uv: No such file or directory",
    )
    assert failed["text"].startswith("PATH is ")


def test_time_that_was_waited_for_others_does_not_count(node: Make) -> None:
    """One that comes second and has to make it after all has its whole time from then on."""
    runs = [node().use_stub() for _ in range(2)]
    wish(
        runs[0],
        None,
        shell(f"sleep 4; [ $CLUSTERCTL_RUN_ID != {runs[0].spec['run']} ]"),
        kind=None,
        time_limit=7,
    )
    share(runs[1], runs[0])
    for run in runs:
        begin(run)
        run.hear("doing")
    first = runs[0].hear("setup_failed", "environment")
    second = runs[1].hear("setup_failed", "environment")
    runs[1].session.close()  # type: ignore[union-attr]  # it was just started

    assert first["event"] == "setup_failed"
    assert second == {"event": "environment"}


@pytest.mark.parametrize("how", ["client", "builder", "agent", "limit"])
def test_what_ends_a_setup_ends_all_of_it(node: Make, how: str) -> None:
    """The client leaves, the setup or the agent is killed, or its time is up: no process and no lock is left."""
    run = node().use_stub()
    wish(
        run,
        None,
        shell("trap '' TERM; setsid sleep 1000 & sleep 1000"),
        kind=None,
        time_limit=2 if how == "limit" else 3600,
    )
    begin(run)
    run.hear("doing")
    if how != "limit":
        sleeping = lambda: [command for command in run.left().values() if "sleep" in command]  # noqa: E731  a word for it
        wait_until(lambda: len(sleeping()) >= 2, "the step's processes")
    if how == "client":
        run.session.close()  # type: ignore[union-attr]  # it was just started
    elif how == "builder":
        builder = next(pid for pid, command in run.left().items() if " setup " in command)
        os.kill(builder, signal.SIGKILL)
    elif how == "agent":
        os.kill(run.pid("agent"), signal.SIGKILL)
    state = run.ended()

    assert state["state"] == ("STOPPED" if how == "client" else "FAILED_SETUP")
    if how == "limit":
        assert run.event("setup_failed")["code"] == "CC-SETUP-002"
        assert state["reason"] == "setup: took longer than its time limit of 2 s"


def test_what_a_command_leaves_in_the_background(node: Make) -> None:
    """It does not keep the command from its end, may go on writing, and ends with the run; a long line is cut last."""
    steps = [
        shell("(sleep 0.3; echo later; sleep 1000) & echo started"),
        shell("printf '%0395d%s' 0 s3cret-word; false"),
    ]
    run = node().use_stub()
    wish(run, None, *steps, kind=None)
    begin(run)
    failed = run.hear("setup_failed")
    run.ended()

    assert failed["text"] == "0" * 395 + "[secr"
    assert "started\n" in (run.rundir / "setup.log").read_text()


def test_a_log_without_end_begins_anew(tmp_path: Path) -> None:
    """A command that prints for ever fills neither memory nor the disk; of an endless line the last part is shown."""
    log = tmp_path / "log"
    program = (
        f"head -c 9000000 /dev/zero; until [ $(stat -c %s {log}) -lt 2000000 ]; do sleep 0.05; done; "
        "echo; echo last; exit 4"
    )
    script = (
        "from clusterctl.node import setup as steps\n"
        "steps.MAX_LOG = 1 << 20; steps.REPORT_INTERVAL = 0.05\n"
        f"one = steps.StepRunner({str(log)!r}, {str(tmp_path)!r}, {{}}, lambda text: None)\n"
        f"try: one.run(['sh', '-c', {program!r}], 'much')\n"
        "except steps.StepFailed as error: print(error.text.splitlines()[-1], error.reason)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PAYLOAD.parents[1], capture_output=True, text=True, check=True)

    assert done.stdout == "last `much` exited with 4\n"
    assert log.stat().st_size < 2 << 20


def test_a_maker_that_was_silent_keeps_what_it_has(tmp_path: Path) -> None:
    """Whose lock was taken loses no directory to who took it; one that has died here loses both at once."""
    script = (
        "import os, sys, time; from clusterctl.node import setup as s\n"
        "lock = s.SetupLock('lock', sys.argv[1]); print(lock.acquire(lambda: False, print), flush=True)\n"
        "os.mkdir(sys.argv[1]); lock.claim(os.path.abspath(sys.argv[1])); print('made', flush=True); sys.stdin.read()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(PAYLOAD.parents[1])}
    command = [sys.executable, "-c", script]
    first = subprocess.Popen(
        [*command, "one"], cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["True\n", "made\n"]
    script = (
        "import os; from clusterctl.node import setup as s; s.HOLDER_TIMEOUT = 0.5\n"
        "lock = s.SetupLock('lock', 'two'); s._has_died = lambda words: False\n"
        "lock.acquire(lambda: False, print); print(list(s.find_unclaimed('.')))\n"
    )
    os.kill(first.pid, signal.SIGSTOP)
    second = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    first.kill()
    first.communicate()
    third = subprocess.run(
        [
            sys.executable,
            "-c",
            "from clusterctl.node import setup as s; print(list(s.find_unclaimed('.')))",
        ],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert second.stdout.splitlines() == ["one", "[]"]
    assert third.stdout == "['./one']\n"


def test_two_runs_at_once_make_it_once(node: Make, files: Path, tmp_path: Path) -> None:
    """The one that comes second waits for the first, and takes what that has made; a dead holder's lock is no lock."""
    count, go_on = tmp_path / "count", tmp_path / "go-on"
    runs = [node().use_stub() for _ in range(2)]
    wish(
        runs[0],
        files,
        shell(f"echo made >> '{count}'; while [ ! -e '{go_on}' ]; do sleep 0.05; done"),
        kind=None,
    )
    share(runs[1], runs[0])
    threads = [threading.Thread(target=provide, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()

    def one_waits() -> bool:
        said = [entry.get("text", "") for run in runs for entry in run.heard]
        return any(text.startswith("waiting for run job-") for text in said)

    wait_until(one_waits, "the second one")
    go_on.touch()
    for thread in threads:
        thread.join()
    for run in runs:
        run.hear("ready")
        run.session.close()  # type: ignore[union-attr]  # it was just started

    assert count.read_text() == "made\n"


AROUND = {
    "steps": [shell('echo "$CLUSTERCTL_NODE_RANK $CLUSTERCTL_STATE $(basename "$PWD") $KEY"')],
    "time_limit": 3600.0,
}


def around(run: NodeRun, name: str) -> str:
    """Read what the commands of `before` or `after` have said."""
    return (run.rundir / "attempt-1" / f"{name}.log").read_text()


@pytest.mark.parametrize("code", [0, 3])
def test_commands_around_an_attempt(node: Make, code: int) -> None:
    """`before` runs in the code before the gate is ready, `after` knows how the ranks ended, well or badly."""
    run = node(f"raise SystemExit({code})", before=AROUND, after=AROUND).use_stub()
    begin(run, "before")
    state = finish(run)

    assert around(run, "before").splitlines()[1:] == ["0  code s3cret-word"]
    assert around(run, "after").splitlines()[1:] == [
        f"0 {'FAILED' if code else 'SUCCEEDED'} code s3cret-word"
    ]
    assert (state["state"], state["after"]) == ("FAILED" if code else "SUCCEEDED", "")


def test_a_before_that_fails(node: Make) -> None:
    """Nothing is started; `after` cleans up what it may have begun."""
    before = {"steps": [shell("echo no mount; false")], "time_limit": 3600.0}
    run = node(before=before, after=AROUND).use_stub()
    begin(run, "before")
    failed = run.hear("setup_failed")
    state = run.ended()

    assert (failed["code"], failed["text"], failed["log"]) == (
        "CC-SETUP-005",
        "no mount",
        "attempt-1/before.log",
    )
    assert (state["state"], state["reason"]) == (
        "FAILED_SETUP",
        "before: `echo no mount; false` exited with 1",
    )
    assert around(run, "after").splitlines()[1:] == ["0 FAILED_SETUP code s3cret-word"]


def test_an_after_that_hangs(node: Make) -> None:
    """It is ended with all that it has started; the run has succeeded all the same, with a note."""
    after = {"steps": [shell("trap '' TERM; setsid sleep 1000 & sleep 1000")], "time_limit": 0.4}
    run = node("print('done')", after=after).use_stub().go()
    state = run.ended()

    assert (state["state"], state["after"]) == (
        "SUCCEEDED",
        "after: took longer than its time limit of 0.4 s",
    )


def test_a_second_stop_does_not_wait(node: Make) -> None:
    """Who asks again while `after` runs ends it; how the run ended stays as it was."""
    after = {"steps": [shell("trap '' TERM; sleep 1000")], "time_limit": 500.0}
    run = node("print('done')", after=after, grace=0.2).use_stub().go()
    wait_until(lambda: "after" in [event["event"] for event in run.events()], "after")
    agent = run.pid("agent")
    os.kill(agent, signal.SIGTERM)
    time.sleep(0.3)
    assert run.left(), "the first one leaves it its time"

    def ended() -> bool:
        with suppress(ProcessLookupError):
            os.kill(agent, signal.SIGTERM)  # of two that come at once the kernel keeps one
        return not run.is_alive()

    wait_until(ended, "the end")
    state = run.ended()

    assert (state["state"], state["after"]) == ("SUCCEEDED", "after: was killed by a second stop")


def test_stop_leaves_after_its_time(node: Make) -> None:
    """`stop` waits for the commands of `after`, and says that the run was stopped, not how long they took."""
    after = {"steps": [shell("sleep 0.8; echo cleaned")], "time_limit": 3600.0}
    run = node("import time; time.sleep(1000)", after=after, grace=0.2).use_stub().go().running()
    run.verb("stop", grace=None, reason="stopped by alice")
    state = run.ended()

    assert (state["state"], state["reason"], state["after"]) == ("STOPPED", "stopped by alice", "")
    assert around(run, "after").endswith("cleaned\n")
