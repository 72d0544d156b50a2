"""What `diagnose` asks of real ranks, and whom it does not signal."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prepared_ranks import ask_ranks

from clusterctl.node.diagnose import rank as rank_module
from clusterctl.node.diagnose.query import ThreadUse, is_still
from clusterctl.node.runtime.processes import identify
from clusterctl.plans.diagnose.evidence import RankEvidence
from clusterctl.plans.diagnose.hang import judge, uncaught_exception

LIMIT = 120.0  # seconds: torch is imported
SCRIPT = """
import sys, time
import torch, torch.distributed as dist

def load_batch():
    time.sleep(1000)

dist.init_process_group("gloo")
ones = torch.ones(10)
dist.all_reduce(ones)
print("up", flush=True)
if dist.get_rank() == 1:
    load_batch()
dist.all_reduce(ones)
"""
# Takes the signal away again, as a program could, and closes the file, or becomes another program.
UNPREPARED = {
    "default action": "import signal; signal.signal(41, signal.SIG_DFL)",
    "closed file": "import os; os.closerange(3, 64); os.open('/dev/null', os.O_RDONLY)",
    "another handler": "import signal; signal.signal(41, print)",
    "another program": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', SLEEP])",
}
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"


class Ranks:
    """Processes prepared as workers of a run are, with the records of the run."""

    def __init__(self, rundir: Path) -> None:
        self.rundir = rundir
        self.folder = rundir / "diagnose" / "1"
        site = self.folder / "site"
        site.mkdir(parents=True)
        shutil.copy(str(rank_module.__file__), site / f"{rank_module.MODULE}.py")
        (site / "sitecustomize.py").write_text(rank_module.STARTER, encoding="ascii")
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, source: str, **env: str | None) -> None:
        """Start one more rank; variables that are None are removed."""
        rank, out = len(self.processes), self.rundir / f"{len(self.processes)}.log"
        search_path = os.pathsep.join(filter(None, (str(self.folder / "site"), os.environ.get("PYTHONPATH"))))
        more = {"RANK": str(rank), "CLUSTERCTL_DIAGNOSE": str(self.folder), "PYTHONPATH": search_path}
        values = {**os.environ, **more, **env}
        with out.open("wb") as sink:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", source],
                    stdout=sink,
                    stderr=sink,
                    env={name: value for name, value in values.items() if value is not None},
                    start_new_session=True,
                )
            )

    def wait_until_up(self) -> None:
        """Wait until every rank has printed so; fails as soon as one has ended instead."""
        deadline = time.monotonic() + LIMIT
        logs = [self.rundir / f"{rank}.log" for rank in range(len(self.processes))]
        for process, log in zip(self.processes, logs, strict=True):
            ended = None
            while "up" not in log.read_text():
                assert ended is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
                ended = process.poll()

    def diagnose(self) -> dict[int, RankEvidence]:
        """Ask them as the verb does."""
        processes = {rank: identify(process.pid) for rank, process in enumerate(self.processes)}
        return {rank.rank: rank for rank in ask_ranks(self.rundir, processes).ranks}

    def diagnose_until(self, condition: Callable[[dict[int, RankEvidence]], bool]) -> dict[int, RankEvidence]:
        """Ask them until an answer is as expected: a loaded machine may leave one out."""
        deadline = time.monotonic() + LIMIT
        while not condition(found := self.diagnose()):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def close(self) -> None:
        """End them all, with what they have started."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Give a run without ranks; those that are started end with the test."""
    made = Ranks(tmp_path)
    yield made
    made.close()


def free_port() -> str:
    """Find a port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ranks_in_a_collective_and_one_that_is_not(ranks: Ranks) -> None:
    """Stacks and records of real ranks; then one is stopped, which shows without a signal; then it goes on."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "3"}
    for _ in range(3):
        ranks.start(SCRIPT, **address, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    ranks.wait_until_up()
    found = ranks.diagnose_until(
        lambda found: all(
            found[rank].groups and found[rank].groups[0].entries[-1].number == 2 for rank in (0, 2)
        )
    )
    assert [rank.problem or rank.records_problem for rank in found.values()] == ["", "", ""]
    assert str(found[1].where) == "<string>:6 in load_batch()" or found[1].frames[0].function == "load_batch"
    assert not found[0].groups[0].entries[-1].done and found[1].groups[0].entries[-1].done
    assert not any("_answer" in rank.stack for rank in found.values())
    time.sleep(max(0.0, 5.2 - min(found[rank].groups[0].entries[-1].age for rank in (0, 2))))
    judgement = judge(ranks.diagnose().values())
    assert (judgement.code, judgement.suspects, judgement.waiting) == ("CC-HANG-004", (1,), (0, 2))

    ranks.processes[1].send_signal(signal.SIGSTOP)
    wait_for(lambda: ranks.diagnose()[1].process == "T")
    judgement = judge(ranks.diagnose().values())
    assert (judgement.code, judgement.suspects) == ("CC-HANG-001", (1,))
    ranks.processes[1].send_signal(signal.SIGCONT)
    wait_for(lambda: ranks.diagnose()[1].problem == "")
    assert [process.poll() for process in ranks.processes] == [None, None, None]


def test_a_process_that_does_not_take_the_signal_lives_on(ranks: Ranks) -> None:
    """The signal's default action ends a process: it is sent to none that has lost its handler or the file."""
    for source in UNPREPARED.values():
        ranks.start(f"SLEEP = {SLEEP!r}\n{source}\n{SLEEP}")
    ranks.start(SLEEP, CLUSTERCTL_DIAGNOSE="")
    ranks.wait_until_up()
    found = ranks.diagnose_until(lambda found: all(found[rank].frames for rank in (0, 2)))  # of their threads
    assert [found[rank].problem for rank in (1, 4)] == ["does not take the signal", "not prepared"]
    assert found[3].problem in (
        "does not take the signal",
        "not prepared",
    )  # it may be too quick to be prepared
    assert [process.poll() for process in ranks.processes] == 5 * [None]
    assert (ranks.rundir / "2.log").read_text() == "up\n"
    assert all(rank.process == "S" for rank in found.values())


# Frames come and go; read without the GIL they end the process, in 1 of 24 times with Python 3.13.
BUSY = """
class Lazy:
    def __getattr__(self, name):
        return sum(x * 2 for x in range(9))

def deepen(depth):
    return Lazy().value if depth == 0 else deepen(depth - 1)

print("up", flush=True)
while True:
    deepen(9)
"""
HOLDS_THE_GIL = """
import ctypes, time
time.sleep(0.2)  # so that the thread which answers has begun
print("up", flush=True)
{call}
"""


def test_a_rank_that_runs_python_is_asked_a_hundred_times_and_lives(ranks: Ranks) -> None:
    """Its own thread reads the stacks, while it holds the GIL."""
    ranks.start(BUSY)
    ranks.wait_until_up()
    answered = [ranks.diagnose()[0] for _ in range(100)]
    assert ranks.processes[0].poll() is None
    assert any(rank.frames and rank.frames[-1].function == "<module>" for rank in answered)


@pytest.mark.parametrize(
    "call",
    ["ctypes.PyDLL(None).sleep(1000)", "sum(range(10 ** 12))"],
    ids=["sleeps", "computes"],
)
def test_c_code_that_holds_the_gil_is_found_by_the_signal(ranks: Ranks, call: str) -> None:
    """No Python can run meanwhile, so the stacks can be read."""
    ranks.start(HOLDS_THE_GIL.format(call=call))
    ranks.wait_until_up()
    found = ranks.diagnose_until(lambda found: bool(found[0].frames))[0]
    assert found.records_problem == "no answer" and ranks.processes[0].poll() is None


@pytest.mark.parametrize(
    ("before", "now", "still"),
    [
        ({1: "S 4", 2: "S 0"}, {1: "S 4", 2: "S 0"}, True),
        ({1: "R 4", 2: "S 0"}, {1: "R 9", 2: "S 0"}, True),
        ({1: "R 4", 2: "S 0"}, {1: "R 8", 2: "S 0"}, False),
        ({1: "S 4", 2: "S 0"}, {1: "S 4", 2: "R 9"}, False),
        ({1: "S 4"}, {1: "S 4", 3: "R 9"}, False),
        ({1: "D 4"}, {1: "D 4"}, True),
        ({1: "S 4"}, {}, False),
    ],
)
def test_the_signal_is_for_a_process_that_executes_no_python(
    before: dict[int, str], now: dict[int, str], still: bool
) -> None:
    """What has computed for 50 ms without releasing the GIL is C code; what lacks a processor may be Python."""
    first, second = (
        {thread: ThreadUse(text[0], int(text[2:])) for thread, text in looks.items()}
        for looks in (before, now)
    )
    assert is_still(first, second, 2) is still


CAUGHT = """
import atexit, time, traceback
atexit.register(time.sleep, 1000)
try:
    {}["missing"]
except KeyError:
    traceback.print_exc()
print("up", flush=True)
"""
IN_THREAD = """
import threading, time
time.sleep(0.2)  # so that the thread which answers has begun
threading.Thread(target=time.sleep, args=(1000,)).start()
print("up", flush=True)
{}["missing"]
"""
IN_DESTRUCTOR = """
import time
time.sleep(0.2)  # so that the thread which answers has begun
class Group:
    def __del__(self, sleep=time.sleep):
        sleep(1000)
group = Group()
print("up", flush=True)
{}["missing"]
"""


def test_a_rank_says_whether_an_exception_has_ended_its_script(ranks: Ranks) -> None:
    """One that saves a checkpoint after a caught exception has not failed; others have, also in a destructor."""
    for source in (CAUGHT, IN_THREAD, IN_DESTRUCTOR):
        ranks.start(source)
    ranks.wait_until_up()
    found = ranks.diagnose_until(
        lambda found: (
            bool(found[0].stack)
            and [uncaught_exception(found[rank]) for rank in (1, 2)] == 2 * ["KeyError: 'missing'"]
        )
    )
    assert [rank.uncaught for rank in found.values()] == [False, True, True]
    assert not any(rank.problem or "<module>" in rank.stack for rank in found.values())
    caught = replace(found[0], stderr=found[1].stderr)
    assert uncaught_exception(caught) == ""
    assert uncaught_exception(replace(caught, uncaught=True)) == "KeyError: 'missing'"


def test_the_interpreter_goes_on_with_the_sitecustomize_of_the_user(ranks: Ranks, tmp_path: Path) -> None:
    """A rank sees its own one, and nothing of ours in its path, its modules or its variables."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("MINE = 1\n", encoding="ascii")
    script = (
        "import os, sys, sitecustomize, threading\n"
        "assert sitecustomize.MINE == 1\n"
        "assert not [entry for entry in sys.path if entry.endswith('/site')], sys.path\n"
        "assert 'CLUSTERCTL_DIAGNOSE' not in os.environ and len(threading.enumerate()) == 1\n"
    )
    search_path = os.pathsep.join((str(ranks.folder / "site"), str(theirs)))
    ranks.start(script + SLEEP, PYTHONPATH=search_path)
    ranks.start(  # an interpreter may have one itself, as Debian's has
        f"import sys; assert {str(ranks.folder)!r} not in repr(sys.modules.get('sitecustomize'))\n{SLEEP}",
        PYTHONPATH=str(ranks.folder / "site"),
    )
    ranks.wait_until_up()
    assert [rank.problem for rank in ranks.diagnose().values()] == ["", ""]


FAILS_AND_WAITS = """
import atexit, time
time.sleep(0.2)  # so that the thread which answers has begun
atexit.register(lambda: time.sleep(1000))
print("up", flush=True)
{}["missing"]
"""
STARTS = """
import subprocess, sys, time

children = [subprocess.Popen([sys.executable, "-c", CHILD, *words]) for words in WORDS]
print("up", flush=True)
time.sleep(1000)
"""
LATE = """
import os, sys, time
time.sleep(0.2)

def train():
    time.sleep(1000)

if len(sys.argv) > 1:
    os.environ["RANK"], os.environ["WORLD_SIZE"] = sys.argv[1:]
train()
"""


def test_a_process_without_rank_counts_under_the_number_of_its_node(ranks: Ranks) -> None:
    """JAX has one process for each node, which waits for the others at its exit, also after an exception."""
    ranks.start(SLEEP, RANK=None)
    ranks.start(FAILS_AND_WAITS, RANK=None)
    ranks.wait_until_up()
    found = ranks.diagnose_until(
        lambda found: bool(found[0].frames) and uncaught_exception(found[1]) == "KeyError: 'missing'"
    )
    assert [(rank.rank, rank.problem, rank.uncaught) for rank in found.values()] == [
        (0, "", False),
        (1, "", True),
    ]
    assert [rank.frames[0].function for rank in found.values()] == ["<module>", "<lambda>"]


def test_a_rank_that_is_assigned_after_the_start_is_found_when_it_is_asked(ranks: Ranks) -> None:
    """As those of Ray Train and mp.spawn: of several worlds the largest counts, and of no rank the program."""
    words = [["1", "2"], ["5", "6"], ["1", "6"], ["0", "1"], []]
    ranks.start(f"CHILD, WORDS = {LATE!r}, {words}\n{STARTS}", RANK=None)
    ranks.wait_until_up()

    def show(rank: RankEvidence) -> tuple[list[bytes], str]:
        command = Path(f"/proc/{rank.pid}/cmdline").read_bytes().split(b"\0")
        return command[-3:-1], rank.frames[0].function if rank.frames else ""

    expected = [([b"1", b"6"], "train"), ([b"5", b"6"], "train")]
    ranks.diagnose_until(lambda found: list(map(show, found.values())) == expected)
    assert ranks.processes[0].poll() is None


def test_the_first_python_below_a_program_is_asked_in_its_place(ranks: Ranks) -> None:
    """A shell cannot be asked; a Python that is no rank leaves nothing when it has ended."""
    shell = (
        "import os; os.execvp('sh', ['sh', '-c', "
        f"'{sys.executable} -c pass; {sys.executable} -c \"$CHILD\"; true'])"
    )
    ranks.start(shell, RANK=None, CHILD=SLEEP)
    ranks.wait_until_up()
    found = ranks.diagnose_until(lambda found: bool(found[0].frames))[0]
    assert (found.problem, found.frames[-1].function) == ("", "<module>")
    assert found.pid != ranks.processes[0].pid
    left = {int(path.stem) for path in ranks.folder.glob("*.json")}
    assert left <= {found.pid, ranks.processes[0].pid}
