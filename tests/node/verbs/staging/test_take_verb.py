"""What a node takes: it goes on with what has come before, one process at a time, and only where there is room."""

from __future__ import annotations

import os
import signal
import zlib
from pathlib import Path
from typing import Any

import pytest
from staging import (
    SOURCE,
    model_rows,
    next_answer,
    open_take,
    rows_of,
    send_blob,
    sha_of,
    staged,
    take,
)
from waiting import wait_until

from clusterctl.node.sync import removal

BIG = os.urandom(3 << 20)
HALF = 2 << 20
ROWS = rows_of({"model/weights": BIG})


def begin(home: Path, *, die: bool) -> Path:
    """Stage half of a file, and end; returns its part."""
    part = home / f".clusterctl-part-{sha_of(BIG)}"
    with open_take(home, home, ROWS) as session:
        assert next_answer(session, "missing")["missing"] == [sha_of(BIG)]
        send_blob(session, BIG, 0, HALF)
        wait_until(lambda: part.exists() and part.stat().st_size == HALF, "the first half is there")
        if die:
            session.process.send_signal(signal.SIGKILL)
        else:
            assert session.process.stdin is not None
            session.process.stdin.close()
        session.process.wait()
    return part


@pytest.mark.parametrize("die", [True, False], ids=["killed", "client-left"])
def test_a_file_is_continued(tmp_path: Path, die: bool) -> None:
    """The node reports how much it has, and its hash; only the rest comes."""
    part = begin(tmp_path, die=die)
    assert part.stat().st_mode & 0o777 == 0o600
    with open_take(tmp_path, tmp_path, ROWS) as session:
        answer = next_answer(session, "missing")
        assert answer["held"] == [[sha_of(BIG), HALF, sha_of(BIG[:HALF])]]
        send_blob(session, BIG, HALF)
        session.send({"done": True})
        assert next_answer(session, "copied")["copied"]["files"] == 1
    assert (tmp_path / "model/weights").read_bytes() == BIG
    assert not part.exists()


def test_a_wrong_part_is_discarded(tmp_path: Path) -> None:
    """What is on the disk is not what came: after its end the node requests the file from the beginning."""
    part = begin(tmp_path, die=True)
    with part.open("r+b") as file:
        file.write(b"damaged")
    with open_take(tmp_path, tmp_path, ROWS) as session:
        assert next_answer(session, "missing")["held"] == [
            [sha_of(BIG), HALF, sha_of(b"damaged" + BIG[7:HALF])]
        ]
        send_blob(session, BIG, HALF)
        session.send({"done": True})
        assert next_answer(session, "missing") == {"missing": [sha_of(BIG)]}
        send_blob(session, BIG)
        session.send({"done": True})
        assert next_answer(session, "copied")["copied"]["bytes"] == len(BIG)
    assert (tmp_path / "model/weights").read_bytes() == BIG


def test_a_whole_part_only_gets_its_name(tmp_path: Path) -> None:
    """The process was killed between the last byte and the name."""
    begin(tmp_path, die=True).write_bytes(BIG)
    with open_take(tmp_path, tmp_path, ROWS) as session:
        assert next_answer(session, "missing") == {"missing": []}
        assert next_answer(session, "copied")["copied"]["files"] == 1


@pytest.mark.parametrize("kind", ["link", "hard-link", "longer", "directory"])
def test_what_is_no_part_is_left_alone(tmp_path: Path, kind: str) -> None:
    """Another account may put anything there under the part's name: nothing is written through it."""
    part, victim = tmp_path / f".clusterctl-part-{sha_of(BIG)}", tmp_path / "victim"
    victim.write_bytes(bytes(HALF))
    if kind == "link":
        part.symlink_to(victim)
    elif kind == "hard-link":
        part.hardlink_to(victim)
    elif kind == "directory":
        part.mkdir()
    else:
        part.write_bytes(BIG + b"more")
    with open_take(tmp_path, tmp_path, ROWS) as session:
        assert next_answer(session, "missing") == {"missing": [sha_of(BIG)]}
        send_blob(session, BIG)
        session.send({"done": True})
        assert next_answer(session, "copied")["copied"]["files"] == 1
    assert victim.read_bytes() == bytes(HALF)
    assert (tmp_path / "model/weights").read_bytes() == BIG


def test_old_parts_are_removed(tmp_path: Path) -> None:
    """Those that nothing has continued for a day, of any content."""
    part, other = begin(tmp_path, die=True), tmp_path / ".clusterctl-part-other"
    other.touch()
    for path in (part, other):
        os.utime(path, (path.stat().st_mtime - removal.STALE - 10,) * 2)
    take(tmp_path, tmp_path)
    assert not part.exists()
    assert not other.exists()


@pytest.mark.parametrize("inside", [False, True], ids=["same", "inside"])
def test_one_process_stages_to_a_place(tmp_path: Path, inside: bool) -> None:
    """The second reports who does, waits, and then finds the content there; elsewhere nobody waits."""
    with open_take(tmp_path, tmp_path, model_rows()) as first:
        next_answer(first, "missing")
        take(tmp_path, tmp_path / "elsewhere")
        target, rows = (tmp_path / "model", ROWS) if inside else (tmp_path, model_rows())
        with open_take(tmp_path, target, rows, staged={**SOURCE, "by": "bob@desk"}) as second:
            assert next_answer(second, "held_by")["held_by"] == "ann@laptop (gpu01)"
            for data in (b"one", b"second"):
                send_blob(first, data)
            first.send({"done": True})
            assert next_answer(first, "copied")["copied"]["files"] == 2
            answer = next_answer(second, "missing")
            assert answer["missing"] == ([sha_of(BIG)] if inside else [])
            if not inside:
                assert next_answer(second, "copied")["copied"]["unchanged"] == 2


def test_a_killed_process_holds_no_place(tmp_path: Path) -> None:
    """Its lock goes with it."""
    begin(tmp_path, die=True)
    take(tmp_path, tmp_path)
    (locks,) = (tmp_path / "work/staged").glob("*/locks")
    assert [path.name for path in locks.iterdir()] == ["mutex"]


def test_a_client_that_leaves_while_its_node_waits(tmp_path: Path) -> None:
    """The node's process ends, though the other one goes on."""
    with open_take(tmp_path, tmp_path, model_rows()) as first:
        next_answer(first, "missing")
        with open_take(tmp_path, tmp_path, model_rows()) as second:
            next_answer(second, "held_by")
            assert second.process.stdin is not None
            second.process.stdin.close()
            assert second.process.wait() == 0


def test_a_directory_that_nodes_share_is_filled_once(tmp_path: Path) -> None:
    """They have work directories of their own: the second waits, then finds all there; no lock stays."""
    shared = tmp_path / "shared"
    shared.mkdir()
    with open_take(tmp_path / "one", shared, model_rows()) as first:
        next_answer(first, "missing")
        with open_take(tmp_path / "two", shared, model_rows()) as second:
            assert next_answer(second, "held_by")["held_by"] == "ann@laptop (gpu01)"
            for data in (b"one", b"second"):
                send_blob(first, data)
            first.send({"done": True})
            assert next_answer(first, "copied")["copied"]["files"] == 2
            assert next_answer(second, "missing")["missing"] == []
            assert next_answer(second, "copied")["copied"]["unchanged"] == 2
    assert [len(staged(tmp_path / home)) for home in ("one", "two")] == [1, 1]
    assert [path.name for path in shared.iterdir()] == ["model"]


def test_a_killed_node_holds_no_shared_directory(tmp_path: Path) -> None:
    """The next one does the rest, and removes the lock that was left."""
    shared = tmp_path / "shared"
    shared.mkdir()
    with open_take(tmp_path / "one", shared, model_rows()) as first:
        next_answer(first, "missing")
        first.process.kill()
    assert [path for path in shared.iterdir() if path.name.startswith(".clusterctl-lock-")]
    assert take(tmp_path / "two", shared)["copied"]["files"] == 2
    assert [path.name for path in shared.iterdir()] == ["model"]


def test_no_room(tmp_path: Path) -> None:
    """Before the first byte: the place, what is needed and what is free."""
    answer = take(tmp_path, tmp_path, [["model/weights", "file", 0o644, "a" * 64, 1 << 60]])
    assert answer["error"]["code"] == "CC-COPY-004"
    begin_of_text = f"no room at {tmp_path}: 1152921504.6GB are needed, "
    assert answer["error"]["message"].startswith(begin_of_text)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("closed", "target"), [("model", ""), ("model/blobs", ""), ("model", "model/new/folder")]
)
def test_a_directory_that_cannot_be_written(tmp_path: Path, closed: str, target: str) -> None:
    """As one that root has made from a container: whose it is, before anything has come."""
    (tmp_path / "model/blobs").mkdir(parents=True)
    (tmp_path / closed).chmod(0o500)
    answer = take(tmp_path, tmp_path / target, as_user=os.geteuid() == 0)
    assert answer["error"]["code"] == "CC-COPY-005"
    uid = os.geteuid()
    assert answer["error"]["message"] == (
        f"{tmp_path / closed} belongs to uid {uid} (mode 0500), and this account is uid {uid}"
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """It cannot be compared; it is not replaced blindly."""
    take(tmp_path, tmp_path)
    (tmp_path / "model/blobs/one").chmod(0)
    answer = take(tmp_path, tmp_path, as_user=os.geteuid() == 0)
    assert answer["error"]["code"] == "CC-COPY-005"
    assert f"{tmp_path}/model/blobs/one belongs to uid" in answer["error"]["message"]


def test_a_full_disk_keeps_no_part(tmp_path: Path) -> None:
    """What has filled the disk is removed; a small part is, too."""
    with open_take(tmp_path, tmp_path, ROWS) as session:
        next_answer(session, "missing")
        session.send({"blob": sha_of(BIG), "at": 0, "last": False}, zlib.compress(b"few bytes"))
        assert session.process.stdin is not None
        session.process.stdin.close()
        session.process.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_what_is_unchanged_is_not_read_again(tmp_path: Path) -> None:
    """Neither what was staged here nor what was read once; `staged` with verify reads it all the same."""
    first: Any = take(tmp_path, tmp_path)
    assert first["copied"]["files"] == 2
    one = tmp_path / "model/blobs/one"
    before = one.stat()
    with one.open("r+b") as file:  # a damage without a new time stamp, as of a disk
        file.write(b"ONE")
    os.utime(one, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert take(tmp_path, tmp_path)["copied"]["files"] == 1  # its ctime has changed
    assert take(tmp_path, tmp_path)["copied"]["unchanged"] == 2
    assert staged(tmp_path, verify=True)[0]["state"] == "whole"


@pytest.mark.parametrize(("make", "problem"), [("mkdir", "is a directory"), ("symlink", "is a link")])
def test_a_directory_or_link_in_the_place_of_something_is_refused(
    tmp_path: Path, make: str, problem: str
) -> None:
    """Nothing is staged then, and nothing is recorded: the run would not find it."""
    name = "model/blobs/one" if make == "mkdir" else "model/blobs"
    place = tmp_path / name
    place.parent.mkdir(parents=True)
    (place.mkdir if make == "mkdir" else lambda: place.symlink_to(tmp_path))()
    answer = take(tmp_path, tmp_path)
    assert (answer["error"]["code"], answer["error"]["message"]) == ("CC-COPY-003", f"{place} {problem}")
    assert staged(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_directory_in_the_place_of_what_was_staged(tmp_path: Path, kind: str) -> None:
    """The source has one there now: what an earlier stage wrote makes way, what the user put there does not."""
    before = ["model/blobs", "link", 0, "/tmp", 0] if kind == "link" else rows_of({"model/blobs": b"one"})[0]
    empty = ["model/empty", "dir", 0, "", 0]
    take(tmp_path, tmp_path, [before, ["model/empty", "link", 0, "/tmp", 0]])
    assert take(tmp_path, tmp_path, [*model_rows(), empty])["copied"]["files"] == 2
    assert (tmp_path / "model/blobs/two").read_bytes() == b"second"
    assert staged(tmp_path)[0]["state"] == "whole"
    (tmp_path / "model/empty").rmdir()
    (tmp_path / "model/empty").symlink_to("/tmp")
    answer = take(tmp_path, tmp_path, [*model_rows(), empty])
    assert answer["error"]["message"] == f"{tmp_path}/model/empty is a link"
    staged(tmp_path, do="remove")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["empty"]
