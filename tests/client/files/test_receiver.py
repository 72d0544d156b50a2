"""Results come home: from a real node over SSH, and from hostile ones that lie about everything."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from clusterctl.client.files import node_files
from clusterctl.client.files.node_files import NodeFiles, NodeListing, list_request, open_node_files
from clusterctl.client.files.receiver import (
    DownloadReport,
    choose_requests,
    fetch_files,
    make_folders_and_links,
)
from clusterctl.client.files.target_dir import TargetDirectory, prepare_target
from clusterctl.client.rpc import session as conversation
from clusterctl.client.rpc.frames import Frame
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.sync.scan import scan_source
from clusterctl.errors import ConnectionLost, LocalSystemError, NodeError
from clusterctl.plans.sync.listed_files import MAX_NAMES, FileSource, OutsideFiles, plan_download
from clusterctl.protocol.untrusted import Untrusted

JOB = "digits"
RUN = "digits-20261120T110000-ab12"
AWKWARD = [
    "a b.txt",
    "quo'te\".txt",
    "new\nline",
    "-rf",
    "$(touch x)",
    "caf\u00e9",
    "cafe\u0301",
    "\u4e2d",
    "~",
]
OUTPUTS = FileSource("outputs", JOB, "")
PYTHON = Interpreter(sys.executable, None)


class Node:
    """A node of this test: a real sshd, and the directory of a job's outputs behind it."""

    def __init__(self, client: Any, server: Any, folder: Path) -> None:
        self.client, self.workdir = client, folder / "work"
        self.node = server.node("gpu01", workdir=str(self.workdir))
        self.connection = client.connect(self.node)
        self.outputs = self.workdir / "outputs" / JOB
        self.outputs.mkdir(parents=True)
        self.workdir.chmod(0o700)

    @contextmanager
    def open(
        self,
        run: str = "",
        most: int = 1000,
        shared_home_probe: str = "b",
        mark: str = "m",
        parts: tuple[str, ...] = ("logs",),
    ) -> Iterator[tuple[NodeFiles, NodeListing]]:
        """Begin a conversation."""
        wanted = [OUTPUTS, *(FileSource(part, "", f"{part}-{run}") for part in parts)]
        request = list_request(self.node, wanted, most, run_id=run, shared_home=(shared_home_probe, mark))
        files, listed = open_node_files(self.connection, PYTHON, request, wanted, MAX_NAMES)
        with files:
            yield files, listed

    def pull(
        self, target: Path, *, run: str = "", parts: tuple[str, ...] = ("logs",), **how: Any
    ) -> DownloadReport:
        """Bring all home."""
        with self.open(run, parts=parts) as (files, listed):
            return bring(files, listed, target, **how)


def bring(
    files: NodeFiles,
    listed: NodeListing,
    target: Path,
    *,
    overwrite: bool = False,
    moved: Callable[[int], None] = lambda _: None,
) -> DownloadReport:
    """Download what a node has listed."""
    plan = plan_download(listed.entries, ignores_case=prepare_target(target))
    report = DownloadReport()
    with TargetDirectory(target, files.node) as directory:
        requests = list(choose_requests(plan, directory, report, overwrite=overwrite))
        fetch_files(files, requests, directory, report, moved)
        make_folders_and_links(plan, directory, report)
        directory.remove_partials()
    return report


def fetch(session: Any, target: Path, **how: Any) -> DownloadReport:
    """Download from a node of the test's own."""
    files = NodeFiles(session, "gpu01")
    return bring(files, files.receive_listing([OUTPUTS], 1000, MAX_NAMES), target, **how)


@pytest.fixture
def node(client: Any, server: Any, tmp_path: Path) -> Node:
    """Give a node whose job has put out nothing yet."""
    return Node(client, server, tmp_path)


def listing(root: Path) -> dict[str, bytes | str]:
    """Read a tree with other means than the code under test."""
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "dir" if path.is_dir() else path.read_bytes()
    return found


def test_everything_comes_home_as_it_is(node: Node, tmp_path: Path) -> None:
    """Names, contents, links and empty folders; a second time nothing travels."""
    (node.outputs / "deep/er").mkdir(parents=True)
    (node.outputs / "empty").mkdir()
    (node.outputs / "deep/er/model.pt").write_bytes(secrets.token_bytes(3_000_000))
    (node.outputs / "zeros").write_bytes(bytes(2_000_000))
    (node.outputs / "nothing").touch()
    (node.outputs / "latest").symlink_to("deep/er/model.pt")
    for name in AWKWARD:
        (node.outputs / name).write_text(name)
    (node.outputs / os.fsdecode(b"latin\xe9")).write_text("x")
    first = node.pull(tmp_path / "home")
    assert listing(tmp_path / "home/gpu01") == listing(node.outputs)
    assert (first.files, first.unchanged, first.refused) == (4 + len(AWKWARD), 0, [])
    seen: list[int] = []
    second = node.pull(tmp_path / "home", moved=seen.append)
    assert (second.files, second.unchanged, seen) == (0, first.files, [])


def test_only_what_changed_travels(node: Node, tmp_path: Path) -> None:
    """A grown log costs what was added, a new checkpoint its size."""
    (node.outputs / "log").write_bytes(secrets.token_bytes(1_000_000))
    (node.outputs / "model.pt").write_bytes(secrets.token_bytes(1000))
    (node.outputs / "still").write_bytes(b"still")
    node.pull(tmp_path / "home")
    with (node.outputs / "log").open("ab") as log:
        log.write(secrets.token_bytes(500))
    (node.outputs / "model.pt").write_bytes(secrets.token_bytes(2000))
    seen: list[int] = []
    account = node.pull(tmp_path / "home", moved=seen.append)
    assert listing(tmp_path / "home/gpu01") == listing(node.outputs)
    assert (sum(seen), account.files, account.unchanged) == (2500, 2, 1)


def test_a_broken_transfer_goes_on_where_it_stopped(node: Node, tmp_path: Path) -> None:
    """Also inside of a large file; a part that was damaged meanwhile is downloaded again."""
    (node.outputs / "model.pt").write_bytes(secrets.token_bytes(4_000_000))
    for damage in (False, True):
        seen: list[int] = []

        def cut(count: int, seen: list[int] = seen) -> None:
            seen.append(count)
            if sum(seen) > 2_000_000:
                raise ConnectionLost("CC-SSH-015")

        with pytest.raises(ConnectionLost):
            node.pull(tmp_path / f"home{damage}", moved=cut)
        assert not (tmp_path / f"home{damage}/gpu01/model.pt").exists()
        (part,) = (tmp_path / f"home{damage}/.clusterctl/gpu01.parts").iterdir()
        if damage:
            part.write_bytes(bytes(part.stat().st_size))
        again: list[int] = []
        account = node.pull(tmp_path / f"home{damage}", moved=again.append)
        assert (account.files, sum(again) < 2_500_000) == (1, not damage)
        assert listing(tmp_path / f"home{damage}/gpu01") == listing(node.outputs)
        assert not (tmp_path / f"home{damage}/.clusterctl/gpu01.parts").exists()


def test_a_file_that_was_changed_here_is_left_alone(node: Node, tmp_path: Path) -> None:
    """Whether it came from the node or not; --overwrite replaces it. What is equal is known as such."""
    for name in ("ours", "theirs", "equal"):
        (node.outputs / name).write_text("node")
    node.pull(tmp_path / "home")
    home = tmp_path / "home/gpu01"
    (home / "ours").write_text("mine")
    (tmp_path / "home/.clusterctl/gpu01.json").unlink()
    (home / "theirs").write_text("mine, longer")
    account = node.pull(tmp_path / "home")
    assert (sorted(account.kept), account.unchanged) == (["ours", "theirs"], 1)
    assert (home / "ours").read_text() == "mine"
    account = node.pull(tmp_path / "home", overwrite=True)
    assert (account.kept, account.files) == ([], 2)
    assert listing(home) == listing(node.outputs)


def test_links_devices_and_what_is_closed_are_reported(node: Node, tmp_path: Path) -> None:
    """Links are never followed on the node; what cannot come is named, the rest comes."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (node.outputs / "out").symlink_to(secret)
    (node.outputs / "up").symlink_to("../../..")
    os.mkfifo(node.outputs / "pipe")
    (node.outputs / "good").write_text("good")
    account = node.pull(tmp_path / "home")
    assert {one.path for one in account.refused} == {"out", "up", "pipe"}
    assert listing(tmp_path / "home/gpu01") == {"good": b"good"}


def test_nothing_is_written_through_a_link_here(node: Node, tmp_path: Path) -> None:
    """A directory that is a link here, or a file that is one, is in the way, not a way."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (node.outputs / "d").mkdir()
    (node.outputs / "d/x").write_text("x")
    (node.outputs / "f").write_text("x")
    home = tmp_path / "home/gpu01"
    home.mkdir(parents=True)
    (home / "d").symlink_to(outside)
    (home / "f").symlink_to(outside / "file")
    for overwrite in (False, True):
        account = node.pull(tmp_path / "home", overwrite=overwrite)
        assert {one.path for one in account.refused} == {"d/x", "f"}
    assert listing(outside) == {"file": b"mine"}


def test_logs_come_without_the_code(node: Node, tmp_path: Path) -> None:
    """To a directory that has the run's name."""
    rundir = node.workdir / "runs" / RUN / "0-gpu01"
    for name in ("attempt-1/r0/stdout.log", "code/train.py", "state.json"):
        (rundir / name).parent.mkdir(parents=True, exist_ok=True)
        (rundir / name).write_text(name)
    node.pull(tmp_path / "home", run=RUN)
    brought = {path for path, what in listing(tmp_path / "home/gpu01").items() if what != "dir"}
    assert brought == {f"logs-{RUN}/attempt-1/r0/stdout.log", f"logs-{RUN}/state.json"}


def test_what_was_left_in_the_code_comes_where_nothing_else_can_be(node: Node, tmp_path: Path) -> None:
    """New and changed files, never what was sent; the node names them also where they are not asked for."""
    rundir = node.workdir / "runs" / RUN / "0-gpu01"
    (rundir / "code").mkdir(parents=True)
    (rundir / "code/train.py").write_text("sent")
    rows = [["train.py", "file", 0o644, hashlib.sha256(b"sent").hexdigest(), 4]]
    (rundir / "manifest").write_bytes(zlib.compress(json.dumps(rows).encode()))
    (rundir / "code/0.ckpt").write_text("weights")
    (rundir / "code/last.ckpt").symlink_to("0.ckpt")
    (node.outputs / "model.pt").write_text("output")
    with node.open(RUN) as (_, listed):
        pass
    assert listed.outside == OutsideFiles(1, 7, ("0.ckpt",))
    assert {entry.path for entry in listed.entries} == {"model.pt"}
    node.pull(tmp_path / "home", run=RUN, parts=("logs", "code"))
    brought = {path: what for path, what in listing(tmp_path / "home/gpu01").items() if what != "dir"}
    assert brought == {
        "model.pt": b"output",
        f"code-{RUN}/0.ckpt": b"weights",
        f"code-{RUN}/last.ckpt": "-> 0.ckpt",
    }


def test_without_a_record_of_what_was_sent_all_of_the_code_comes(node: Node, tmp_path: Path) -> None:
    """A run of an older version: its files are not reported apart, so none is lost."""
    rundir = node.workdir / "runs" / RUN / "0-gpu01"
    (rundir / "code").mkdir(parents=True)
    (rundir / "code/0.ckpt").write_text("weights")
    with node.open(RUN) as (_, listed):
        assert listed.outside is None
    node.pull(tmp_path / "home", run=RUN, parts=("code",))
    assert listing(tmp_path / "home/gpu01")[f"code-{RUN}/0.ckpt"] == b"weights"


def test_of_a_log_that_was_cut_both_ends_come(node: Node, tmp_path: Path) -> None:
    """Not the gigabytes of zeros between them; a second time only what is new travels."""
    log = node.workdir / "runs" / RUN / "0-gpu01" / "attempt-1" / "stdout.log"
    log.parent.mkdir(parents=True)
    with log.open("wb") as sink:
        sink.write(b"first\n")
        sink.seek(40 << 30)
        sink.write(b"newest\n")
    log.with_name("stdout.log.cut").write_text(json.dumps({"begin": 6, "end": 40 << 30, "freed": 40 << 30}))
    note = b"[clusterctl: 42949672954 bytes of this log were dropped here to hold log_limit]\n"
    for last in (b"newest\n", b"newest\nstill newer\n"):
        node.pull(tmp_path / "home", run=RUN)
        brought = tmp_path / f"home/gpu01/logs-{RUN}/attempt-1/stdout.log"
        assert brought.read_bytes() == b"first\n" + note + last
        with log.open("ab") as sink:
            sink.write(b"still newer\n")


def test_nodes_with_one_home_find_the_same_mark(node: Node) -> None:
    """The first to light the beacon leaves its own, which the others read; it goes out with its session."""
    probes = (("b1", "m1"), ("b1", "m2"), ("b2", "m3"))
    with ExitStack() as opened:
        marks = [opened.enter_context(node.open("", 9, *probe))[1].mark for probe in probes]
        assert marks in (["m1", "m1", "m3"], ["m2", "m2", "m3"])
        assert len(list((node.workdir / "beacons").iterdir())) == 2
    wait_until(lambda: not list((node.workdir / "beacons").iterdir()), "they go out")


def test_too_many_files_are_refused_before_one_comes(node: Node) -> None:
    """The limit is the client's, and the node need not keep to it for it to hold."""
    for number in range(12):
        (node.outputs / str(number)).touch()
    with pytest.raises(NodeError, match="more than 10") as caught, node.open(most=10):
        pass
    assert caught.value.code == "CC-PULL-001"


def test_a_job_that_put_out_nothing_is_no_error(node: Node, tmp_path: Path) -> None:
    """Neither is one that this node has never seen."""
    node.outputs.rmdir()
    assert node.pull(tmp_path / "home") == DownloadReport()


def test_results_are_no_code(node: Node, tmp_path: Path) -> None:
    """A directory that is made for them is not sent with the next launch; one that was there is as it was."""
    (node.outputs / "model.pt").write_text("x")
    source = tmp_path / "source"
    (source / "mine").mkdir(parents=True)
    (source / "train.py").write_text("x")
    node.pull(source / "outputs" / JOB)
    node.pull(source / "mine")
    files = {entry.path for entry in scan_source(source).manifest.entries if entry.kind == "file"}
    assert files == {"train.py", "mine/gpu01/model.pt"}


# ---- nodes that lie ----


def row(path: str, kind: str = "file", size: int = 5, target: str = "") -> list[Any]:
    """Make a row."""
    return [0, path, kind, size, 1, 1, 1, target, 0o644]


SHA = hashlib.sha256(b"hello").hexdigest()
GOOD = ({"file": 0, "at": 0, "packed": False}, b"hello")
WHOLE = ({"whole": 0, "sha256": SHA, "size": 5, "same": True}, b"")


Said = tuple[dict[str, Any], bytes]


class Hostile:
    """A node that answers with frames of the test's own."""

    def __init__(self, rows: Any, *answers: Said, more_rows: Sequence[Any] = ()) -> None:
        self._frames: Iterator[Said] = iter(
            [
                *(({"rows": 1}, zlib.compress(json.dumps(batch).encode())) for batch in (rows, *more_rows)),
                ({"listed": 1, "more": False, "mark": "m"}, b""),
                *answers,
            ]
        )
        self.asked: list[Mapping[str, Any]] = []

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Note what is asked."""
        assert body == b""
        self.asked.append(header)

    def receive(self, timeout: float) -> Frame | None:
        """Answer, then hang up."""
        assert timeout > 0
        frame = next(self._frames, None)
        return None if frame is None else (Untrusted(frame[0]), frame[1])


def list_all(session: Any, most_name_bytes: int = MAX_NAMES) -> NodeListing:
    """Receive the list of a node of the test's own."""
    return NodeFiles(session, "gpu01").receive_listing([OUTPUTS], 1000, most_name_bytes)


def test_the_conversation_that_all_lies_are_variations_of(tmp_path: Path) -> None:
    """An honest answer is taken."""
    account = fetch(Hostile([row("a")], GOOD, WHOLE, ({"fetched": True}, b"")), tmp_path / "home")
    assert (account.files, account.refused) == (1, [])
    assert listing(tmp_path / "home/gpu01") == {"a": b"hello"}


@pytest.mark.parametrize(
    "answers",
    [
        [({"file": 0, "at": 0, "packed": False}, b"hello world"), WHOLE],
        [({"file": 0, "at": 0, "packed": False}, b"hellO"), WHOLE],
        [({"file": 0, "at": 0, "packed": False}, b"hell"), WHOLE],
        [({"file": 0, "at": 3, "packed": False}, b"lo"), WHOLE],
        [({"file": 0, "at": -1, "packed": False}, b"hello"), WHOLE],
        [({"file": 0, "at": "0", "packed": False}, b"hello"), WHOLE],
        [({"file": 0, "at": 0, "packed": True}, b"not packed"), WHOLE],
        [({"file": 0, "at": 0, "packed": True}, zlib.compress(bytes(50_000_000))), WHOLE],
        [({"file": 0, "at": 0, "packed": False}, b""), GOOD, WHOLE, ({"fetched": True}, b"")],
        [GOOD, GOOD, WHOLE],
        [GOOD, ({"whole": 0, "sha256": "0" * 64, "size": 5, "same": True}, b"")],
        [GOOD, ({"whole": 0, "sha256": None, "size": 5, "same": True}, b"")],
        [({"file": 1, "at": 0, "packed": False}, b"hello")],
        [({"file": [0], "at": 0, "packed": False}, b"hello")],
        [({"fetched": True}, b"")],
        [({"unheard": "of"}, b"")],
        [GOOD],
        [],
    ],
    ids=repr,
)
def test_a_node_that_does_not_send_what_it_announced_harms_nothing(
    tmp_path: Path, answers: list[Frame]
) -> None:
    """No file gets its name, and the error reports whose fault it is."""
    with pytest.raises((NodeError, ConnectionLost)) as caught:
        fetch(Hostile([row("a")], *answers), tmp_path / "home")
    assert (caught.value.code, caught.value.node) == ("CC-PULL-003", "gpu01")
    assert listing(tmp_path / "home/gpu01") == {}


@pytest.mark.parametrize("answer", [{"whole": 0, "sha256": SHA, "size": 4}, {"failed": 0, "why": "\x1b[2J"}])
def test_a_file_that_did_not_keep_still_is_reported(tmp_path: Path, answer: dict[str, Any]) -> None:
    """It became shorter, or went away: the others come all the same."""
    second = [({"file": 1, "at": 0, "packed": False}, b"hello"), ({**WHOLE[0], "whole": 1}, b"")]
    node = Hostile([row("a"), row("b")], (answer, b""), *second, ({"fetched": True}, b""))
    account = fetch(node, tmp_path / "home")
    assert [one.path for one in account.refused] == ["a"]
    assert listing(tmp_path / "home/gpu01") == {"b": b"hello"}


def test_a_file_that_was_listed_with_another_hash_is_not_written(tmp_path: Path) -> None:
    """What is sent does not count as the file, nor does what has been here since an earlier time."""
    end, other = ({"fetched": True}, b""), hashlib.sha256(b"hellO").hexdigest()
    first = fetch(Hostile([row("a", target=other)], GOOD, WHOLE, end), tmp_path / "home")
    assert listing(tmp_path / "home/gpu01") == {}
    fetch(Hostile([row("a", target=SHA)], GOOD, WHOLE, end), tmp_path / "home")
    again = fetch(Hostile([row("a", target=other)], WHOLE, end), tmp_path / "home")
    for account in (first, again):
        assert [(one.path, one.by_node) for one in account.refused] == [("a", True)]
        assert (account.files, account.unchanged) == (0, 0)
    assert listing(tmp_path / "home/gpu01") == {"a": b"hello"}


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil", "a/../../evil", "nul\0l", ".", "\ud800"])
def test_a_name_that_leads_out_is_not_asked_for(tmp_path: Path, path: str) -> None:
    """Only its own directory is written to."""
    node = Hostile([row(path), row(f"{path}/x"), row(path, "link", 0, "x")])
    account = fetch(node, tmp_path / "in/home")
    assert (len(account.refused), node.asked) == (3, [])
    assert listing(tmp_path / "in/home/gpu01") == {}
    assert {path.name for path in (tmp_path / "in").rglob("*")} <= {
        "home",
        ".gitignore",
        ".clusterctl",
        "gpu01",
        "gpu01.lock",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_link_does_not_become_a_way(tmp_path: Path) -> None:
    """First a link to a directory, then a file through it, in one list or in two pulls."""
    (tmp_path / "home/gpu01/d").mkdir(parents=True)
    fetch(Hostile([row("l", "link", 0, "d")]), tmp_path / "home")
    account = fetch(Hostile([row("l/x")]), tmp_path / "home")
    assert [one.path for one in account.refused] == ["l/x"]
    assert listing(tmp_path / "home/gpu01") == {"d": "dir", "l": "-> d"}


THE_END = ({"fetched": True}, b"")


def test_a_part_does_not_replace_what_was_copied_by_hand(tmp_path: Path) -> None:
    """A pull broke off, the user copied the file himself: the next pull leaves his as it is."""
    with pytest.raises(ConnectionLost):
        fetch(Hostile([row("a")], ({"file": 0, "at": 0, "packed": False}, b"hel")), tmp_path / "home")
    (tmp_path / "home/gpu01/a").write_bytes(b"hello")
    account = fetch(Hostile([row("a")], WHOLE, THE_END), tmp_path / "home")
    assert (account.unchanged, account.files) == (1, 0)
    assert listing(tmp_path / "home/gpu01") == {"a": b"hello"}


@pytest.mark.parametrize("before", [None, b"12345"])
def test_a_file_that_is_saved_here_meanwhile_is_left_alone(tmp_path: Path, before: bytes | None) -> None:
    """Between the decision and the last byte hours may pass, with --overwrite too."""
    mine = tmp_path / "home/gpu01/a"

    class Slow(Hostile):
        def receive(self, timeout: float) -> Frame | None:
            frame = super().receive(timeout)
            if frame is not None and "whole" in frame[0]:
                mine.write_bytes(b"saved just now")
            return frame

    if before is not None:
        mine.parent.mkdir(parents=True)
        mine.write_bytes(before)
    account = fetch(Slow([row("a")], GOOD, WHOLE, THE_END), tmp_path / "home", overwrite=True)
    assert (account.files, account.kept) == (0, ["a"])
    assert mine.read_bytes() == b"saved just now"


def test_two_pulls_do_not_write_into_one_part(tmp_path: Path) -> None:
    """The second gets a notice of the first, and may come when that has ended."""
    prepare_target(tmp_path / "home")
    first = TargetDirectory(tmp_path / "home", "gpu01")
    with pytest.raises(LocalSystemError) as caught:
        TargetDirectory(tmp_path / "home", "gpu01")
    assert caught.value.code == "CC-PULL-007"
    TargetDirectory(tmp_path / "home", "gpu02").close()
    first.close()
    TargetDirectory(tmp_path / "home", "gpu01").close()


def test_an_empty_part_does_not_hold_up_a_file_that_grew(tmp_path: Path) -> None:
    """A pull that broke off before the first byte was written leaves one."""
    fetch(Hostile([row("a")], GOOD, WHOLE, THE_END), tmp_path / "home")
    grown = row("a", size=7)
    prepare_target(tmp_path / "home")
    landing = TargetDirectory(tmp_path / "home", "gpu01")
    grown_entry = list_all(Hostile([grown])).entries[0]
    os.close(landing.open_partial(landing.partial_name(grown_entry), os.O_WRONLY | os.O_CREAT))
    landing.close()
    sha = hashlib.sha256(b"hello!!").hexdigest()
    rest = ({"file": 0, "at": 5, "packed": False}, b"!!")
    node = Hostile([grown], rest, ({**WHOLE[0], "sha256": sha, "size": 7}, b""), THE_END)
    assert fetch(node, tmp_path / "home").files == 1
    assert listing(tmp_path / "home/gpu01") == {"a": b"hello!!"}


def test_links_among_our_own_files_lead_nowhere(tmp_path: Path) -> None:
    """A directory that came from elsewhere may hold them: nothing is swept or written through one."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/key").write_text("mine")
    ours = tmp_path / "home/.clusterctl"
    ours.mkdir(parents=True)
    (ours / ".gitignore").symlink_to(tmp_path / "precious/key")
    (ours / "gpu01.parts").symlink_to(tmp_path / "precious")
    with pytest.raises(LocalSystemError) as caught:
        fetch(Hostile([row("a")], GOOD, WHOLE, THE_END), tmp_path / "home")
    assert caught.value.code == "CC-PULL-004"
    assert listing(tmp_path / "precious") == {"key": b"mine"}


def test_a_list_that_unpacks_to_gigabytes_is_refused() -> None:
    """Nothing is unpacked beyond a limit; nor is anything else taken for a list."""
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(70)) + packer.flush()
    for body in (bomb, b"no zlib", zlib.compress(b"{}")):
        node = Hostile([])
        node._frames = iter([({"rows": 1}, body)])
        with pytest.raises(NodeError) as caught:
            list_all(node)
        assert caught.value.code == "CC-PULL-003"


FULL_DISK = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from test_receiver import Hostile, fetch, row, big
try:
    fetch(big(), Path(sys.argv[1]) / "home")
except Exception as error:
    print(error.code, type(error).__name__)
print(sorted(p.name for p in (Path(sys.argv[1]) / "home/gpu01").iterdir()))
"""


def big() -> Hostile:
    """A small file, and one that is larger than the disk."""
    data = bytes(1_000_000)
    pieces = [({"file": 1, "at": n * len(data), "packed": False}, data) for n in range(8)]
    return Hostile([row("a"), row("b", size=8 * len(data))], GOOD, WHOLE, *pieces)


def test_a_full_disk_here_is_a_clear_error(tmp_path: Path) -> None:
    """What had arrived stays, and what had not has no name."""
    disk = tmp_path / "disk"
    disk.mkdir()
    how = "-m" if os.geteuid() == 0 else "-rm"
    trial = ["unshare", how, "true"]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    paths = [
        str(Path(__file__).parent),
        *map(str, (Path(__file__).parents[2] / "support", Path(__file__).parents[3])),
    ]
    script = 'd=$1; shift; mount -t tmpfs -o size=4m tmpfs "$d" && exec "$@"'
    program = [sys.executable, "-c", FULL_DISK, str(disk), *paths]
    done = subprocess.run(
        ["unshare", how, "sh", "-c", script, "sh", str(disk), *program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["CC-PULL-002 LocalSystemError", "['a']"]


def test_a_node_that_gets_nowhere_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats alone are no progress."""
    monkeypatch.setattr(conversation, "STALL", 0.05)
    node = Hostile([row("a")])
    node.receive = lambda timeout: (Untrusted({"beat": timeout, "steps": 7}), b"")  # type: ignore[method-assign]  # it never ends
    with pytest.raises(NodeError) as caught:
        fetch(node, tmp_path / "home")
    assert caught.value.code == "CC-PULL-006"


def test_names_have_a_budget() -> None:
    """Few files with long names are refused like many files, also batch by batch; the limit is the client's."""
    rows = [row(f"{number}" + "x" * 100) for number in range(5)]
    one_by_one = [[one] for one in rows]
    for first, more in ((rows, []), (one_by_one[0], one_by_one[1:])):
        with pytest.raises(NodeError, match="too many bytes of file names") as caught:
            list_all(Hostile(first, more_rows=more), 1000)
        assert caught.value.code == "CC-PULL-001"
        node = Hostile(first, more_rows=more)
        assert len(list_all(node, 9000).entries) == 5


@pytest.mark.parametrize("rows", [[], [row("a")]])
def test_a_list_without_end_is_refused(rows: list[Any]) -> None:
    """Empty batches, or a name now and then, are answers that would hold the download for ever."""
    node = Hostile([])
    frame = ({"rows": len(rows)}, zlib.compress(json.dumps(rows).encode()))
    node._frames = itertools.repeat(frame)
    with pytest.raises(NodeError) as caught:
        list_all(node)
    assert (caught.value.code, caught.value.node) == ("CC-PULL-003", "gpu01")


class Slow(Hostile):
    """A node that sends on after so many seconds, by a clock of the test's own."""

    def __init__(self, rows: Any, answers: Iterable[Said], seconds: float) -> None:
        super().__init__(rows)
        self._frames = itertools.chain(self._frames, answers)
        self.now, self._seconds = 0.0, seconds

    def receive(self, timeout: float) -> Frame | None:
        """Answer late."""
        self.now += self._seconds if self.asked else 0.0
        return super().receive(timeout)


def drip(size: int) -> Iterator[Said]:
    """Send a file without end in pieces of so many bytes."""
    return (({"file": 0, "at": at, "packed": False}, bytes(size)) for at in itertools.count(0, size))


def beat() -> Iterator[Said]:
    """Report work, and send nothing."""
    return (({"beat": number, "steps": number}, b"") for number in itertools.count())


def short_files(first: int) -> Iterator[Said]:
    """Send empty files."""
    whole = {"sha256": hashlib.sha256(b"").hexdigest(), "size": 0, "same": True}
    for index in range(400):
        yield {"whole": index, **whole}, b""
        if index % first == first - 1 or index == 399:
            yield {"fetched": True}, b""


@pytest.mark.parametrize(("answers", "seconds"), [(drip(1), 19.0), (drip(4096), 19.0), (beat(), 2.0)])
def test_a_node_that_nearly_stops_sending_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Iterator[Said], seconds: float
) -> None:
    """Each of its answers is in time, but there is no end to them; an hour of it is too much."""
    node = Slow([row("a", size=1 << 40)], answers, seconds)
    monkeypatch.setattr(node_files, "time", SimpleNamespace(monotonic=lambda: node.now))
    with pytest.raises(NodeError, match="bytes per second") as caught:
        fetch(node, tmp_path / "home")
    assert (caught.value.code, caught.value.node) == ("CC-PULL-006", "gpu01")
    assert node.now < 3600


def test_a_slow_line_and_many_files_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both last longer than patience does; how long this process was halted is not counted."""
    line = Slow([row("a", size=100 << 18)], itertools.islice(drip(1 << 18), 100), 19.0)
    many = Slow([row(f"{number}", size=0) for number in range(400)], short_files(200), 2.0)
    halted = Slow([row("a")], [GOOD, WHOLE, ({"fetched": True}, b"")], 1e6)
    for node in (line, many, halted):
        monkeypatch.setattr(node_files, "time", SimpleNamespace(monotonic=lambda node=node: node.now))
        if node is line:
            with pytest.raises(ConnectionLost):
                fetch(node, tmp_path / "line")
        else:
            assert fetch(node, tmp_path / f"{id(node)}").files in (1, 400)
        assert node.now > node_files.PATIENCE
