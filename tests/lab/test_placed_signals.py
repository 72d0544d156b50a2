"""A signal at any place of any verb ends it: with the signal's exit code, with what that means, and with nothing held.

Each case is one place: the nth call of the main thread that waits, in whatever library, or the nth end of an import.
An exception that was raised there left a lock of paramiko's held, or was dropped.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from driving import (
    COMMAND,
    STUBBED,
    cctl,
    environment,
    kill_leftovers,
    make_project,
    run_id,
    tagged,
)
from placed_signals import LATE, NOT_REACHED, placed_environment, write_sitecustomize
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab import labs
from clusterctl.lab.labs import Lab

SOON = (
    5.0  # seconds after which a verb that never ends gets the signal where a variant's place is not reached
)
TICKS = """
import time
for count in range(36000):
    print("tick", count, flush=True)
    time.sleep(0.1)
"""
NUMBERS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SERVERS = ("debug", "forward", "ui")  # Ctrl-C is their usual end

# The words of each verb, and its own places; the others are places of every verb.
FOLLOWING: dict[str, tuple[Sequence[str], Sequence[int]]] = {
    "attach": (("attach", "RUN"), (56, 110)),
    "logs -f": (("logs", "-f", "RUN"), (70, 201)),
    "status -w": (("status", "-w", "RUN"), (110,)),
    "top": (("top",), (70,)),
    "exec": (("exec", "--", "sleep", "600"), (30,)),
    "check": (("check",), (33, 61)),
    "ps": (("ps",), (26,)),
    "status": (("status", "RUN"), (26,)),
    "logs": (("logs", "RUN"), (46,)),
    "diagnose": (("diagnose", "RUN"), (36,)),
    "sync": (("sync", "JOB"), (29,)),
    "pull": (("pull", "RUN", "FOLDER"), (28,)),
    "cp": (("cp", "JOB", "gpu[01-03]:/tmp/copied"), (26,)),
    "clean": (("clean",), (40,)),
    "forward": (("forward", "RUN", "6006"), (40,)),
    "ui": (("ui", "--port", "0"), (12,)),
    "ssh": (("ssh", "gpu01", "--", "sleep", "600"), (26,)),
    "debug": (("debug", "RUN"), (45,)),
    "report": (("report", "RUN", "-o", "FOLDER/report.html"), (41,)),
    "inventory": (
        ("inventory", "show"),
        (6,),
    ),  # of 8 where the first thread has started before it is waited for
    "discover": (
        ("inventory", "discover", "gpu[01-03]", "--ssh-config", "CONFIG", "-o", "FOLDER/made.yaml"),
        (28,),
    ),
    "init": (("init", "gpu01", "--ssh-config", "CONFIG", "--dir", "FOLDER"), (10,)),
    "keys": (("keys", "push", "-y"), (20,)),
    "stop": (("stop", "no-such-run", "-y"), (30,)),
}
PLACES = (2, 7, 12, 20, 25, 33, 40, 48, 55, 65, 80, 95, 120, 160, 200, 260)
LAUNCH = (40, 190, 245, 301, 450)
LAUNCH_PLACES = (
    130,
    214,
    270,
    5,
    25,
    60,
    85,
    105,
    150,
    170,
    200,
    207,
    221,
    228,
    235,
    252,
    260,
    280,
    350,
    600,
)


# Verbs that wait where another one waits: of `ps`, `logs -f`, `cp` and `init`; and second places of a verb.
ALIKE = {"status-26", "logs-46", "diagnose-36", "clean-40", "report-41", "pull-28", "discover-28"}
ALIKE |= {"attach-110", "check-61"}


def cases() -> list[object]:
    """Return every verb with its places; those that are not its own, or like those of another, are variants."""
    anywhere = [("wait", place) for place in PLACES] + [("import", 40), ("import", 250)]
    return [
        pytest.param(name, "wait", place, id=case, marks=[VARIANT] if case in ALIKE else [])
        for name, (_, own) in FOLLOWING.items()
        for place in own
        for case in (f"{name}-{place}",)
    ] + [
        pytest.param(name, kind, place, marks=VARIANT, id=f"{name}-{kind}-{place}")
        for name in FOLLOWING
        for kind, place in anywhere
    ]


def launch_cases() -> list[object]:
    """Return the places of a launch."""
    return [
        *(pytest.param("import", place, id=f"import-{place}") for place in (50, 400)),
        *(pytest.param("wait", place, id=str(place)) for place in LAUNCH),
        *(pytest.param("wait", place, marks=VARIANT, id=str(place)) for place in LAUNCH_PLACES),
        pytest.param("import", 200, marks=VARIANT, id="import-200"),
    ]


@pytest.fixture(scope="module")
def run(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run whose ranks write all the time."""
    job = make_project(tmp_path_factory.mktemp("run"), TICKS, env=STUBBED)
    launched = cctl(cluster, "launch", "-d", job)
    assert launched.code == 0, launched.err
    yield launched.out.strip()
    kill_leftovers(cluster)


@pytest.fixture
def place_of_labs(place: Path) -> Iterator[Path]:
    """A state directory whose labs end with the test."""
    yield place
    labs.down(place / "clusterctl" / "lab")


def run_names(cluster: Lab) -> set[str]:
    """Name the runs that have processes on the nodes."""
    return {process.run_id for processes in tagged(cluster).values() for process in processes}


def signalled(
    cluster: Lab, folder: Path, words: Sequence[str], placed: tuple[str, int], late: float = LATE, **env: str
) -> tuple[subprocess.CompletedProcess[str], int, str]:
    """Run a command that gets one signal at a place; gives how it ended, the signal, and where it was."""
    kind, place = placed
    number, log = NUMBERS[place % len(NUMBERS)], folder / "place"
    write_sitecustomize(folder / "site")
    done = subprocess.run(
        [*COMMAND, *words],
        env=environment(
            cluster, **placed_environment(folder / "site", kind, place, number, log, late), **env
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done, number, log.read_text() if log.exists() else ""


@pytest.mark.parametrize(("verb", "kind", "place"), cases())
def test_a_signal_at_any_place_ends_a_verb(
    cluster: Lab, run: str, tmp_path: Path, verb: str, kind: str, place: int
) -> None:
    """It ends, with the exit code of the signal, unless it was over before the place was reached."""
    job = make_project(tmp_path / "job", "print(1)", env=STUBBED)
    values = {"RUN": run, "JOB": str(job), "FOLDER": str(tmp_path), "CONFIG": str(cluster.ssh_config)}
    words = [values.get(word, word.replace("FOLDER", str(tmp_path))) for word in FOLLOWING[verb][0]]
    own = place in FOLLOWING[verb][1]
    done, number, where = signalled(cluster, tmp_path, words, (kind, place), late=HANG / 2 if own else SOON)

    assert not (own and where in NOT_REACHED), "a place of the default suite is reached"
    if where in NOT_REACHED and done.returncode < 128:
        return
    codes = {128 + number, *((0,) if verb in SERVERS and number == signal.SIGINT else ())}
    assert done.returncode in codes, (where, done.stderr)
    assert (
        done.returncode == 0 or verb in SERVERS or "interrupted" in done.stderr or "detached" in done.stderr
    )


@pytest.mark.parametrize(
    "at", [4, 9, 15, *(pytest.param(each, marks=VARIANT) for each in (1, 6, 12, 20, 30))]
)
def test_a_signal_at_any_place_leaves_no_half_of_a_lab(
    cluster: Lab,
    at: int,
    place_of_labs: Path,
    tmp_path: Path,
) -> None:
    """`lab up` ends, and what it says of the lab is so."""
    words = ["lab", "up", "-n", "1", "--name", "half", "--backend", "inproc"]
    done, number, where = signalled(cluster, tmp_path, words, ("wait", at), XDG_STATE_HOME=str(place_of_labs))
    running = [lab.name for lab in labs.list_running(place_of_labs / "clusterctl" / "lab")]
    if done.returncode != 128 + number:
        assert (done.returncode, where in NOT_REACHED, running) == (0, True, ["half"])
        return
    assert ("lab half is running" in done.stderr) == bool(running), (where, done.stderr)
    assert "interrupted" in done.stderr


@pytest.mark.parametrize(("kind", "place"), launch_cases())
def test_a_signal_at_any_place_ends_a_launch_and_what_it_says_is_so(
    cluster: Lab, tmp_path: Path, kind: str, place: int
) -> None:
    """A run that continues is said to continue; after every other sentence nothing is left."""
    job = make_project(tmp_path / "job", TICKS, env=STUBBED)
    before = run_names(cluster)
    done, number, where = signalled(cluster, tmp_path, ["launch", str(job), "--json"], (kind, place))
    ends = [json.loads(line)["verdict"] for line in done.stdout.splitlines() if '"verdict"' in line]

    assert done.returncode == 128 + number, (where, done.stderr)
    if "detached; the run continues" in done.stderr:
        name = run_id(done.stderr)
        state = json.loads(cctl(cluster, "status", name, "--json").out)["run"]["state"]
        stopped = cctl(cluster, "stop", name, "--grace", "0")
        assert (state, [end["state"] for end in ends], stopped.code) == ("RUNNING", ["RUNNING"], 0)
    else:
        assert "interrupted" in done.stderr and "continues" not in done.stderr
        assert all(end["state"] == "STOPPED" for end in ends)
        wait_until(lambda: run_names(cluster) <= before, f"nothing left after {where}")
