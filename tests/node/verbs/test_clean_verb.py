"""The node's side of `clean` removes only what is surely nobody's any more."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from session import Session
from waiting import wait_until

from clusterctl.node.state import temp_dirs
from clusterctl.node.verbs import clean

DAY = 86400
BOOT = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
SHA = "ab" + "0" * 62


class Work:
    """A work directory, filled by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700)
        (path / "id").write_text("0123456789abcdef")
        self.write("outputs/digits/model.pt", 99)

    def write(self, name: str, days: float, text: str = "x") -> Path:
        """Write a file that is so many days old."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - days * DAY,) * 2)
        return path

    def run(self, name: str, days: float = 9, node: str = "gpu01", **state: Any) -> Path:
        """Record a run."""
        spec = {"run": name, "job": "digits", "node": node, "node_rank": 0, "attempt": 1}
        record = {**spec, "state": "SUCCEEDED", "boot_id": BOOT, "agent": None, "guardian": None, "since": 0}
        rundir = self.path / "runs" / name / f"0-{node}"
        for file, content in (("spec.json", spec), ("state.json", {**record, "reason": "", **state})):
            self.write(f"runs/{name}/0-{node}/{file}", days, json.dumps(content))
        self.write(f"runs/{name}/0-{node}/code/train.py", days)
        os.utime(rundir, (time.time() - days * DAY,) * 2)
        return rundir

    def clean(
        self, *runs: str, node: str = "gpu01", before: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        """Remove parts of runs and what can be spared; gives what was found and what was removed."""
        asked = {"workdir": str(self.path), "node": node, "unused": 7 * DAY, "payload": "f" * 64}
        with Session("clean", asked) as session:
            first = session.receive()
            assert first is not None
            if first[0].get("found") is None:
                return first[0]
            before()
            session.send({"remove": {"runs": [[run, f"0-{node}"] for run in runs], "rest": True}})
            return {**first[0], **session.frames()[-2][0]}

    def files(self) -> set[str]:
        """List what is there."""
        return {str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_dir()}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Give a work directory that has only outputs."""
    return Work(tmp_path / "work")


@pytest.fixture
def sleeper() -> Iterator[Callable[[str], None]]:
    """Start processes that bear a tag."""
    started = []

    def start(tag: str) -> None:
        process = subprocess.Popen(["sleep", "3600"], env={**os.environ, "CLUSTERCTL_RUN": tag})
        started.append(process)
        # A process in the middle of exec has no environment yet, although Popen has already returned.
        wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes(), "exec")

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_what_is_named_goes_and_nothing_else(work: Work) -> None:
    """The other run stays, and so do the outputs; nothing is left of what went."""
    work.run("old")
    kept = work.run("kept")
    answer = work.clean("old")
    assert (answer["removed"]["runs"], answer["removed"]["failed"]) == (1, [])
    assert {one["run"] for one in answer["found"]["runs"]} == {"old", "kept"}
    assert kept.exists()
    assert not (work.path / "runs/old").exists()
    assert (work.path / "outputs/digits/model.pt").exists()
    assert list((work.path / "trash").iterdir()) == []


def test_a_run_that_lives_stays_whatever_is_asked(work: Work, sleeper: Callable[[str], None]) -> None:
    """By its guardian, and by its tag where the record says that it ended."""
    stat = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    me = {"pid": os.getpid(), "starttime": int(stat[19])}
    work.run("live", state="RUNNING", agent=me)
    work.run("tagged")
    sleeper("tagged/gpu01/1")
    answer = work.clean("live", "tagged")
    assert answer["removed"]["runs"] == 0
    assert [why for _, why in answer["removed"]["failed"]] == [
        "it is still running",
        "some of its processes are still running",
    ]
    assert {one["run"]: one["blocked"] for one in answer["found"]["runs"]} == {
        "live": "",
        "tagged": "some of its processes are still running",
    }


def test_a_run_of_which_nothing_is_known_stays_while_it_writes(work: Work) -> None:
    """It may live on another machine that shares the home."""
    work.run("writes", days=0.5, state="RUNNING", boot_id="another")
    work.run("silent", days=40, state="RUNNING", boot_id="another")
    answer = work.clean("writes", "silent")
    assert answer["removed"]["failed"] == [["writes/0-gpu01", "it may be running on another machine"]]
    assert answer["removed"]["runs"] == 1


def test_a_run_that_comes_to_life_meanwhile_stays(work: Work) -> None:
    """What was found is looked at again."""
    rundir = work.run("given-up")
    (rundir / "state.json").unlink()
    (rundir / "spec.json").unlink()
    answer = work.clean("given-up", before=lambda: (rundir / "new").write_text("x"))
    assert answer["removed"]["failed"] == [["given-up/0-gpu01", "it may be starting"]]
    assert rundir.exists()


def test_parts_of_other_nodes_are_not_touched(work: Work) -> None:
    """On a home that nodes share each removes its own; the run's directory goes with the last part."""
    work.run("r", node="gpu01")
    other = work.run("r", node="gpu02")
    answer = work.clean("r")
    assert [one["node_dir"] for one in answer["found"]["runs"]] == ["0-gpu01"]
    assert (answer["removed"]["runs"], other.exists()) == (1, True)
    assert work.clean("r", node="gpu02")["removed"]["runs"] == 1
    assert list((work.path / "runs").iterdir()) == []


@pytest.mark.parametrize("name", ["..", "a/b", "", "../outputs"])
def test_a_name_that_is_a_path_removes_nothing(work: Work, name: str) -> None:
    """Neither as run nor as part of one."""
    before = work.files()
    answer = work.clean(name)
    assert answer["removed"]["runs"] == 0
    assert len(answer["removed"]["failed"]) == 1
    assert work.files() == before


def test_the_store_gives_what_nobody_uses(work: Work) -> None:
    """What is young, what is no content, and what came into use meanwhile stay."""
    work.write(f"store/ab/{SHA}", 8)
    young = work.write(f"store/ab/{SHA[:-1]}1", 6)
    used = work.write(f"store/ab/{SHA[:-1]}2", 8)
    odd = [work.write(name, 99) for name in ("store/ab/notes", "store/cd/" + SHA, "store/id")]
    answer = work.clean(before=lambda: os.utime(used))
    assert (answer["found"]["store"]["contents"], answer["removed"]["contents"]) == (2, 1)
    assert all(path.exists() for path in (young, used, *odd))
    assert not (work.path / "store/ab" / SHA).exists()


def test_payloads_go_when_no_run_lives_anywhere(work: Work) -> None:
    """A run of another machine that shares the home may need any of them; the client's own stays."""
    own = work.write("bin/" + "f" * 64 + "/payload.zip", 99)
    old = work.write("bin/" + "a" * 64 + "/payload.zip", 99)
    work.write("bin/" + "a" * 64 + "/payload-cpython-311-" + "b" * 64 + ".zip", 99)
    work.write("bin/" + "a" * 64 + "/payload.zip.0123456789abcdef.new", 99)  # of a start that broke off
    elsewhere = work.run("elsewhere", node="gpu02", state="RUNNING", boot_id="another")
    assert work.clean()["found"]["payloads"]["contents"] == 0
    (elsewhere / "state.json").write_text('{"state": "SUCCEEDED"}')
    work.clean()
    assert (own.exists(), old.parent.exists()) == (True, False)


def test_links_and_other_accounts_are_left_alone(work: Work, tmp_path: Path) -> None:
    """A link in a run is removed as a link; a file of another account keeps the run."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (work.run("linked") / "code/out").symlink_to(outside)
    assert work.clean("linked")["removed"]["runs"] == 1
    assert (outside / "file").exists()
    if os.geteuid() == 0:
        os.chown(work.run("foreign") / "code/train.py", 65534, 65534)
        answer = work.clean("foreign")
        assert "belongs to another account" in answer["removed"]["failed"][0][1]


def test_links_among_the_directories_are_no_way_out(work: Work, tmp_path: Path) -> None:
    """Where somebody put a link for the trash, the store or a run, nothing behind it goes."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("deep/thesis", "draft"):
        (outside / name).write_text("mine")
        os.utime(outside / name, (0, 0))
    moved = work.run("moved")
    moved.rename(outside / "run")
    moved.symlink_to(outside / "run")
    (work.path / "store").mkdir()
    for name in ("trash", "store/incoming"):
        (work.path / name).symlink_to(outside)
    before = sorted(outside.rglob("*"))
    answer = work.clean("moved")
    assert "is a link" in answer["removed"]["failed"][0][1]
    assert answer["removed"]["contents"] == 0
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("content", [None, "", "not an id at all", "0123456789ABCDEF"])
def test_a_directory_without_our_mark_is_refused(work: Work, content: str | None) -> None:
    """Whatever else is in it."""
    work.run("old")
    (work.path / "id").unlink()
    if content is not None:
        (work.path / "id").write_text(content)
    before = work.files()
    assert work.clean("old")["error"]["code"] == "CC-CLEAN-001"
    assert work.files() == before


def test_no_work_directory_is_nothing_to_clean(tmp_path: Path) -> None:
    """And none is made."""
    asked = {"workdir": str(tmp_path / "none"), "node": "gpu01", "unused": 0, "payload": "f" * 64}
    with Session("clean", asked) as session:
        assert session.receive() == ({"found": None}, b"")
    assert not (tmp_path / "none").exists()


def test_environments_go_when_no_run_uses_them(work: Work) -> None:
    """Old ones and half-made ones go, whatever a job has made read-only; those in use, and recent ones, stay."""
    for name, days in (("a" * 16, 9), ("b" * 16, 9), ("c" * 16, 2)):
        work.write(f"envs/{name}-00000000/tok/lib/x.py", days, "x" * 1000)
        work.write(f"envs/{name}-00000000/made.json", days, "{}")
    half = work.write(f"envs/{'d' * 16}-00000000/tok/bin/python", 9).parents[2]
    os.utime(half, (time.time() - 9 * DAY,) * 2)
    (work.path / "envs" / f"{'a' * 16}-00000000" / "tok" / "lib").chmod(0o500)
    rundir = work.run("digits-1", state="RUNNING", agent={"pid": os.getpid(), "starttime": _starttime()})
    spec = json.loads((rundir / "spec.json").read_text())
    (rundir / "spec.json").write_text(json.dumps({**spec, "setup": {"content": "b" * 64}}))
    answer = work.clean()

    assert answer["found"]["environments"]["contents"] == 2
    assert answer["found"]["environments"]["bytes"] > 1000
    assert answer["removed"]["environments"] == 2
    left = sorted(path.name[:1] for path in (work.path / "envs").iterdir())
    assert left == ["b", "c"]


def test_what_killed_supervisors_of_a_run_left_outside_goes(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories of Ray and mpirun in /tmp that no agent has locked; nothing else there."""
    temporary = tmp_path / "tmp"
    for name in ("cc-run-0123456789-1-abcd/r", "cc-run-0123456789-2-abcd", "cc-run-ffffffffff-1-abcd", "x"):
        (temporary / name).mkdir(parents=True)
    for path in temporary.iterdir():
        path.chmod(0o700)
    (temporary / "cc-run-ffffffffff-1-abcd").chmod(0o755)  # who made it is not known
    monkeypatch.setattr(temp_dirs, "TEMPORARY", str(temporary))
    monkeypatch.setattr(temp_dirs, "SHARED_MEMORY", "/nowhere")
    used = temp_dirs.open_own(str(temporary / "cc-run-0123456789-2-abcd"))
    fcntl.flock(used, fcntl.LOCK_SH)
    clean.Cleaner(
        str(work.path), {"workdir": "", "node": "gpu01", "unused": DAY, "payload": "f"}, lambda: None
    ).remove({"runs": [], "rest": False})
    os.close(used)

    left = ["cc-run-0123456789-2-abcd", "cc-run-ffffffffff-1-abcd", "x"]
    assert sorted(path.name for path in temporary.iterdir()) == left


def _starttime() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def test_two_nodes_that_share_a_home_clean_at_once(work: Work) -> None:
    """Each content is counted by one of them; what the other has removed of the trash meanwhile is no failure."""
    for number in range(300):
        work.write(f"store/ab/ab{number:062x}", 9)
    for number in range(60):
        for name in range(20):
            work.write(f"trash/{number:016x}/code/{name}.py", 1)
    asked = {"workdir": str(work.path), "unused": 7 * DAY, "payload": "f" * 64}
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(Session("clean", {**asked, "node": name})) for name in ("gpu01", "gpu02")
        ]
        for node in nodes:
            assert node.receive() is not None
        for node in nodes:
            node.send({"remove": {"runs": [], "rest": True}})
        removed = [node.frames()[-2][0]["removed"] for node in nodes]

    assert [one["failed"] for one in removed] == [[], []]
    assert sum(one["contents"] for one in removed) == 300
    assert list((work.path / "trash").iterdir()) == []


def test_copies_of_checkpoints_go_with_their_run(work: Work) -> None:
    """They count as its size; those of another run stay."""
    for name in ("digits-1", "digits-2"):
        work.run(name)
        work.write(f"mirror/{name}/0-gpu01/store/ab/{SHA}", 9, "x" * 5000)
    answer = work.clean("digits-1")
    assert [run["bytes"] > 5000 for run in answer["found"]["runs"]] == [True, True]
    assert answer["removed"]["bytes"] > 5000
    assert {path for path in work.files() if path.startswith("mirror")} == {
        f"mirror/digits-2/0-gpu01/store/ab/{SHA}"
    }
    assert not (work.path / "mirror/digits-1").exists()
