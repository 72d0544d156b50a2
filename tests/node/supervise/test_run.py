"""Runs from the client's first frame to the final state, with real torchrun and Gloo."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from noderun import NodeRun
from variants import VARIANT
from waiting import wait_until

Make = Callable[..., NodeRun]

ALL_REDUCE = """
import json, os, signal, sys
numbers = [number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")]
descriptors = [os.readlink(f"/proc/self/fd/{number}") for number in numbers]
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
names = ("SIGTERM", "SIGHUP", "SIGCHLD", "SIGQUIT")
default = [name for name in names if signal.getsignal(getattr(signal, name)) is signal.SIG_DFL]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "sum": value.item(), "cwd": os.getcwd(), "path0": sys.path[0], "env": dict(os.environ),
    "fds": descriptors,
    "default": default, "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "blocked": status["SigBlk"].strip(), "ignored": status["SigIgn"].strip(),
    "nice": os.nice(0), "umask": status["Umask"].strip(), "stdin": os.readlink("/proc/self/fd/0"),
}))
dist.destroy_process_group()
"""

BARE = "import os; print(dict(os.environ))"


def test_a_run_of_two_workers(node: Make) -> None:
    """Two workers reduce, and are what plain torchrun would have started."""
    run = node(ALL_REDUCE, nproc=2, world_size=2).go()
    state = run.ended()
    told = [json.loads(run.output(rank)) for rank in (0, 1)]

    assert (state["state"], state["reason"], state["left"]) == ("SUCCEEDED", "", [])
    assert state["world_size_seen"] == 2
    assert [worker["sum"] for worker in told] == [2.0, 2.0]
    assert [(rank["local_rank"], rank["exit"], rank["signal"]) for rank in state["ranks"].values()] == [
        (0, 0, None),
        (1, 0, None),
    ]
    assert (state["torchrun"]["exit"], state["torchrun"]["signal"]) == (0, None)
    assert state["master"] == f"127.0.0.1:{run.port}"
    names = [event["event"] for event in run.events()]
    seen_any_time = ["listening", "rank_exited", "rank_exited", "torchrun_exited", "workers"]
    assert (names[:3], names[-1]) == (["preparing", "ready", "go_received"], "ended")
    assert sorted(names[3:-1]) == seen_any_time
    worker = told[1]
    assert worker["cwd"] == worker["path0"] == worker["env"]["PWD"] == str(run.code)
    assert worker["env"]["CLUSTERCTL_RUN"] == run.tag
    assert worker["env"]["CLUSTERCTL_RUN_ID"] == run.spec["run"]
    assert worker["env"]["CLUSTERCTL_OUTPUT_DIR"] == str(run.root / "outputs")
    assert worker["env"]["PYTHONUNBUFFERED"] == "1"
    assert stat.S_IMODE((run.root / "outputs").stat().st_mode) == 0o700
    assert worker["stdin"] == os.devnull
    logs = [str(run.rundir / state["ranks"]["1"][stream]) for stream in ("stdout", "stderr")]
    own = [
        name for name in worker["fds"] if not name.startswith(f"{run.rundir}/diagnose/")
    ]  # it opened these itself
    assert sorted(own) == sorted([os.devnull, *logs]), "nothing of ours is inherited"
    assert (worker["default"], worker["int"]) == (["SIGTERM", "SIGHUP", "SIGCHLD", "SIGQUIT"], True)
    assert int(worker["blocked"], 16) == 0
    assert int(worker["ignored"], 16) == 1 << 12 | 1 << 24, "what Python itself ignores: SIGPIPE and SIGXFSZ"
    assert (worker["nice"], int(worker["umask"], 8)) == (os.nice(0), current_umask())
    ours = ["spec.json", "state.json", "events.jsonl", "agent.log", "attempt-1", "attempt-1/torchrun.log"]
    assert not [name for name in ours if (run.rundir / name).stat().st_mode & 0o077]


def current_umask() -> int:
    """Read the umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_world_of_another_size_is_no_success(node: Make) -> None:
    """torchrun's exit code 0 does not count when the workers saw another WORLD_SIZE than planned."""
    state = node(BARE, world_size=3).use_stub().go().ended()

    assert state["state"] == "FAILED"
    assert state["reason"] == "rank 0 saw WORLD_SIZE 1, planned were 3"
    assert (state["world_size_seen"], state["torchrun"]["exit"]) == (1, 0)


HOSTILE = [
    "", " ", "a b", "it's", '"quoted"', "$(touch hacked)", "`id`", "two\nlines", "tab\t", "grün 日本", "-flag",
    "--", "*", "~", "\\", "%s%n", "${HOME}", "a;b|c&d>e",
    "\x1b[31m", "ends with newline\n",
]  # fmt: skip


def test_hostile_values_arrive_as_they_are(node: Make) -> None:
    """Arguments, environment and secrets reach the worker byte for byte."""
    script = "import os, sys, json; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    env = {f"HOSTILE_{number}": value for number, value in enumerate(HOSTILE)}
    run = node(script, args=HOSTILE, env={**env, "FILLED": ["p", {"fill": "master_port"}, "\n"]})
    run.start({"SECRET": "s3cr$et '\n"})
    run.hear("ready")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": run.port})
    run.hear("end")
    assert run.ended()["state"] == "SUCCEEDED"
    argv, seen = json.loads(run.output(0))

    assert argv == HOSTILE
    assert {key: seen[key] for key in env} == env
    assert seen["FILLED"] == f"p{run.port}\n"
    assert seen["SECRET"] == "s3cr$et '\n"
    leaks = [
        path.name for path in run.rundir.rglob("*") if path.is_file() and b"s3cr$et" in path.read_bytes()
    ]
    assert leaks == ["stdout.log"], "only what the worker itself printed"
    assert not (run.code / "hacked").exists()


@pytest.mark.parametrize(
    ("module", "flags", "argv"),
    [
        ("torch.distributed.run", [], ["--local_rank=0"]),
        pytest.param("torch.distributed.launch", ["--use-env"], ["--local_rank=0"], marks=VARIANT),
        ("torch.distributed.launch", [], ["--local-rank=0", "--local_rank=0"]),
    ],
)
def test_a_module_and_its_local_rank(node: Make, module: str, flags: list[str], argv: list[str]) -> None:
    """Each launcher runs a module of the code; the older spelling of --local-rank is an argument like any other."""
    run = node("import json, sys; print(json.dumps([__name__, sys.argv[1:]]))", module=module)
    run.spec["argv"] = [*run.argv()[:-1], *flags, "--module", "train", "--local_rank=${local_rank}"]
    state = run.go().ended()

    assert state["state"] == "SUCCEEDED"
    assert json.loads(run.output(0)) == ["__main__", argv]


def test_values_survive_another_locale(node: Make) -> None:
    """A node with a Latin-1 locale, or none, passes the same bytes on."""
    script = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + os.environb[b'WORD'])"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = node(script, args=["grün"], env={"WORD": "日本", **locale}).use_stub().go()

    assert run.ended()["state"] == "SUCCEEDED"
    assert run.output(0) == "grün日本"


def test_the_code_cannot_shadow_the_interpreter(node: Make) -> None:
    """Files named like modules do the launcher no harm, even with PYTHONPATH set to the code directory."""
    run = node(env={"PYTHONPATH": f".:{os.environ.get('PYTHONPATH', '')}"})
    for name in ("types", "json", "torch", "payload", "subprocess"):
        (run.code / f"{name}.py").write_text(f"raise SystemExit('{name} shadowed')")
    run.spec["argv"] = [*run.argv()[:-1], "--no-python", "/bin/echo", "fine"]
    state = run.go().ended()

    assert (run.output(0).strip(), state["state"]) == ("fine", "SUCCEEDED")


def test_variables_left_in_the_account_are_cleared(node: Make) -> None:
    """PET_*, RANK and the like of an earlier job do not reach torchrun; the user's own values win."""
    run = node(BARE, env={"PYTHONUNBUFFERED": "0"}).use_stub()
    stale = {"PET_NNODES": "7", "RANK": "5", "TORCHELASTIC_RUN_ID": "stale", "CLUSTERCTL_RUN": "x"}
    stale["CLUSTERCTL_ACTIVATE_STATUS"] = "1"
    run.start(env={**os.environ, **stale, "KEPT": "yes"})
    run.hear("ready")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": run.port})
    run.hear("end")

    assert run.ended()["state"] == "SUCCEEDED"
    seen = eval(run.output(0))
    assert "PET_NNODES" not in seen
    assert "CLUSTERCTL_ACTIVATE_STATUS" not in seen
    assert seen["KEPT"] == "yes"
    assert seen["PYTHONUNBUFFERED"] == "0"
    assert seen["CLUSTERCTL_RUN"] == run.tag


def test_a_grandchild_that_outlives_torchrun_is_ended(node: Make) -> None:
    """A setsid grandchild is asked, then killed, and the ended event names it."""
    script = (
        "import subprocess, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)"
    )
    run = node(script).use_stub().go()

    assert run.ended()["state"] == "SUCCEEDED"
    assert [entry["name"] for entry in run.event("ended")["ended"]] == ["sleep"]


def test_a_torch_that_cannot_be_imported(node: Make) -> None:
    """The gate's traceback reaches the client and the run ends as FAILED_SETUP."""
    run = node(BARE)
    (run.root / "broken" / "torch").mkdir(parents=True)
    (run.root / "broken" / "torch" / "__init__.py").write_text("raise OSError('no libcudart.so.12')")
    run.spec["env"]["PYTHONPATH"] = str(run.root / "broken")
    run.start()
    failed = run.hear("gate_failed")
    run.hear("end")
    state = run.ended()

    assert "Traceback" in failed["text"]
    assert state["state"] == "FAILED_SETUP"
    assert state["reason"] == "OSError: no libcudart.so.12"


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_an_interpreter_that_does_not_start(node: Make, python: str) -> None:
    """A missing or broken interpreter is told, with its name."""
    run = node(BARE, python=python)
    run.start()
    failed = run.hear("gate_failed")
    run.hear("end")

    assert python in failed["text"]
    assert run.ended()["state"] == "FAILED_SETUP"


def test_a_port_from_the_inventory(node: Make) -> None:
    """The master port comes from the range given; a node that has none free says so."""
    first = 20000 + os.getpid() % 8000
    run = node(BARE, ports=[first, first + 9]).use_stub().go()
    assert first <= run.port <= first + 9
    assert run.ended()["state"] == "SUCCEEDED"


def test_another_port_is_taken_when_somebody_has_ours(node: Make) -> None:
    """Another listener on the master port costs one more start of torchrun, and the client learns the new port."""
    run = node(BARE)
    run.start()
    run.hear("ready")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert run.session is not None
        run.session.send({"do": "go", "master_port": taken})
        listening = run.hear("listening", "failed")
        state = run.ended()

    assert listening["event"] == "listening"
    assert listening["port"] not in (taken, run.port)
    assert (state["state"], state["master"]) == ("SUCCEEDED", f"127.0.0.1:{listening['port']}")
    assert run.event("port_taken")["port"] == taken


def test_a_script_that_fails_before_torchrun_was_seen_listening_has_run(node: Make) -> None:
    """An agent that gets no processor meanwhile tells of a run that failed by its script, not of a failed start."""
    run = node("def f(:\n")
    run.start()
    run.hear("ready")
    agent, torchrun = run.pid("agent"), run.pid("torchrun")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": run.port})
    wait_until(
        lambda: "go_received" in [event["event"] for event in run.events()], "go_received", every=0.001
    )
    with suppress(ProcessLookupError):  # where this test comes too late it proves nothing, and fails nothing
        os.kill(agent, signal.SIGSTOP)
        wait_until(lambda: is_over(torchrun), "torchrun's end")
        os.kill(agent, signal.SIGCONT)
    heard = run.hear("listening", "failed")
    state = run.ended()

    assert heard["event"] == "listening"
    assert (state["state"], state["reason"]) == ("FAILED", "rank 0 exited with 1")
    assert "SyntaxError" in run.output(0, "stderr")


def is_over(pid: int) -> bool:
    """Tell whether a process has ended, though nobody has asked how."""
    stat_file = Path(f"/proc/{pid}/stat")
    try:
        return stat_file.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_no_port_left_is_told(node: Make) -> None:
    """The only port of the inventory's range is taken after all: that is what the client hears."""
    stub = (
        "import socket, subprocess, sys, time\ndef main(argv):\n"
        "    port = argv[argv.index('--master-port') + 1]\n"
        "    take = f'import socket, time; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind((\"\", {port}));'\n"
        "    take += ' s.listen(); print(1, flush=True); time.sleep(3600)'\n"
        "    subprocess.Popen([sys.executable, '-c', take], stdout=subprocess.PIPE).stdout.readline()\n"
        "    sys.exit('EADDRINUSE')\n"
    )
    run = node(BARE).use_stub(stub)
    run.spec["ports"] = [28000 + os.getpid() % 4000] * 2
    run.start()
    run.hear("ready")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": run.port})
    failed = run.hear("gate_failed")

    assert failed["code"] == "CC-NET-020"
    assert run.ended()["state"] == "FAILED_SETUP"


def test_a_run_is_started_once(node: Make) -> None:
    """A second start of the same run on the same node is refused and harms nothing."""
    run = node(BARE).use_stub().go()
    run.ended()
    before = run.state()
    with run.start() as session:
        (error, _), _ = session.frames()

    assert error["error"]["code"] == "CC-RUN-013"
    assert run.state() == before


def test_the_payload_is_sent_once_and_verified(node: Make) -> None:
    """A damaged copy on the node is replaced; a good one is used without asking."""
    run = node(BARE, was_here=False).use_stub().go()
    run.ended()
    (stored,) = (run.workdir / "bin").glob("*/payload.zip")
    assert any("need" in header for header in run.heard)

    again = node(BARE, run="job-2").use_stub()
    again.workdir = run.workdir
    again.code.mkdir(parents=True)
    (again.code / "train.py").write_text(BARE)
    stored.write_bytes(stored.read_bytes()[:-1])
    for folder in (again.rundir.parent, again.rundir):
        folder.chmod(0o700)
    again.go()
    again.ended()
    assert any("need" in header for header in again.heard)
    assert stored.read_bytes() == run.zip


def test_python_under_test_is_the_one_named(node: Make) -> None:
    """torchrun and workers run under the interpreter of the spec, by the path given."""
    run = node("import sys; print(sys.executable)").use_stub().go()
    run.ended()
    assert run.output(0).strip() == sys.executable
    wait_until(lambda: not run.is_alive(), "nothing left")
