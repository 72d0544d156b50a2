"""The node's side of a sync checks all that it receives."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from session import Session

from clusterctl.node.sync import removal, store

TEXT = b"print(1)\n"
SHA = hashlib.sha256(TEXT).hexdigest()
RUN = "digits-20261120T110000-ab12"


def file_row(path: str, **changes: Any) -> list[Any]:
    """Make a row for a file that holds TEXT."""
    row = {"path": path, "kind": "file", "mode": 0o644, "content": SHA, "size": len(TEXT), **changes}
    return list(row.values())


def converse(
    workdir: Path, rows: Any, contents: list[tuple[dict[str, Any], bytes]], **request: Any
) -> dict[str, Any]:
    """Send a manifest and contents as they are; give the last frame before the end."""
    asked = {"workdir": str(workdir), "run": RUN, "node": "gpu01", "node_rank": 0, **request}
    with Session("sync", asked) as session:
        session.send({"manifest": True}, zlib.compress(json.dumps(rows).encode()))
        first = session.receive()
        if first is None or "missing" not in first[0]:
            return first[0] if first else {}
        with suppress(BrokenPipeError):  # it may have refused, and ended, before it has read all
            for header, body in contents:
                session.send(header, zlib.compress(body))
            if first[0]["missing"]:
                session.send({"done": True})
        return session.frames()[-2][0]


BLOB = ({"blob": SHA, "at": 0, "last": True}, TEXT)


def files_below(folder: Path) -> set[str]:
    """List what is there, directories left out."""
    found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {str(path.relative_to(folder)) for path in found}


def test_a_plain_file_arrives(tmp_path: Path) -> None:
    """The conversation that all refusals below are variations of."""
    answer = converse(tmp_path / "work", [file_row("a/b.py")], [BLOB])
    assert (answer["files"], answer["bytes"], answer["differs"]) == (1, len(TEXT), [])
    home = f"runs/{RUN}/0-gpu01/code/a/b.py"
    manifest = f"runs/{RUN}/0-gpu01/manifest"
    assert files_below(tmp_path / "work") == {home, manifest, f"store/{SHA[:2]}/{SHA}"}


@pytest.mark.parametrize(
    "rows",
    [
        [file_row("../evil")],
        [file_row("a/../../evil")],
        [file_row("/tmp/evil")],
        [file_row("")],
        [file_row(".")],
        [file_row("a//b")],
        [file_row("a/")],
        [file_row("nul\0l")],
        [file_row("lone\ud800")],
        [file_row("a", mode=0o4755)],
        [file_row("a", kind="fifo")],
        [file_row("a", content="../../../etc/passwd")],
        [file_row("a", content=SHA.upper())],
        [file_row("a", size=-1)],
        [file_row("a", size="9")],
        [["a", "link", 0, "", 0]],
        [["a", "link", 0, "nul\0l", 0]],
        [["a", "link", 0, "..", 0], file_row("a/evil")],
        [file_row("a"), file_row("a/b")],
        [["a", "dir", 0, "", 0], file_row("a/b")],
        [["a", "dir", 0, [], 0]],
        [file_row("a"), file_row("a")],
        [file_row("a")[:3]],
        [["a", "file", 0o644, None, 9]],
        [[None, "file", 0o644, SHA, 9]],
        "text",
        {"a": 1},
        None,
    ],
    ids=repr,
)
def test_a_manifest_that_leads_astray_is_refused(tmp_path: Path, rows: Any) -> None:
    """Nothing is written for a manifest with a bad entry, inside the work directory or outside."""
    answer = converse(tmp_path / "in/work", rows, [])
    assert answer["error"]["code"] == "CC-SYNC-007"
    assert answer["error"]["traceback"] == ""
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize("names", [{"run": "../x"}, {"run": ""}, {"node": "a/b"}, {"run": ".."}], ids=repr)
def test_names_that_are_paths_are_refused(tmp_path: Path, names: dict[str, str]) -> None:
    """Run and node make one directory each, below the work directory."""
    request = {"workdir": str(tmp_path / "work"), "run": RUN, "node": "gpu01", "node_rank": 0, **names}
    with Session("sync", request) as session:
        answer = session.frames()[0][0]
    assert "name" in answer["error"]["message"]
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("contents", "code"),
    [
        ([({"blob": SHA, "at": 0, "last": True}, b"print(2)\n")], "CC-SYNC-009"),
        ([({"blobs": [[SHA, len(TEXT)]]}, TEXT[:-1])], "CC-SYNC-009"),
        ([({"blob": "0" * 64, "at": 0, "last": True}, b"x")], "CC-SYNC-007"),
        ([({"blob": SHA, "at": 0, "last": False}, TEXT)], "CC-SYNC-008"),
        ([], "CC-SYNC-008"),
    ],
)
def test_contents_that_are_not_as_announced_are_refused(
    tmp_path: Path, contents: list[tuple[dict[str, Any], bytes]], code: str
) -> None:
    """Wrong, unasked and incomplete contents leave nothing behind."""
    answer = converse(tmp_path / "work", [file_row("a.py")], contents)
    assert answer["error"]["code"] == code
    assert files_below(tmp_path) == set()


def test_links_are_made_as_given_and_nothing_goes_through_them(tmp_path: Path) -> None:
    """A link that points out of the tree is only text."""
    outside = tmp_path / "outside"
    outside.mkdir()
    rows = [["aaa", "link", 0, str(outside), 0], file_row("b/c.py"), ["b/up", "link", 0, "../../../x y", 0]]
    answer = converse(tmp_path / "work", rows, [BLOB])
    code = tmp_path / "work/runs" / RUN / "0-gpu01/code"
    assert answer["differs"] == []
    assert (code / "aaa").readlink() == outside
    assert str((code / "b/up").readlink()) == "../../../x y"
    assert list(outside.iterdir()) == []


def test_everything_is_private(tmp_path: Path) -> None:
    """Directories of ours are 0700, stored contents 0600, and code has exactly the modes of the manifest."""
    old = os.umask(0o002)
    try:
        converse(tmp_path / "work", [file_row("a.py"), file_row("run.sh", mode=0o755)], [BLOB])
    finally:
        os.umask(old)
    work = tmp_path / "work"
    code = work / "runs" / RUN / "0-gpu01/code"
    modes = {path: path.stat().st_mode & 0o7777 for path in work.rglob("*") if code not in path.parents}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert [(code / name).stat().st_mode & 0o777 for name in ("a.py", "run.sh")] == [0o644, 0o755]


def test_a_run_with_other_code_is_left_alone(tmp_path: Path) -> None:
    """A second tree for the same run is refused; the same tree again is fine."""
    converse(tmp_path / "work", [file_row("a.py")], [BLOB])
    assert converse(tmp_path / "work", [file_row("a.py")], [])["differs"] == []
    answer = converse(tmp_path / "work", [file_row("b.py")], [])
    assert answer["error"]["code"] == "CC-SYNC-011"
    assert (tmp_path / "work/runs" / RUN / "0-gpu01/code/a.py").read_bytes() == TEXT


def test_a_node_that_waits_keeps_beating(tmp_path: Path) -> None:
    """While nothing else is said the client can tell a live node from a dead one."""
    request = {"workdir": str(tmp_path / "work"), "run": RUN, "node": "gpu01", "node_rank": 0}
    with Session("sync", request) as session:
        session.send({"manifest": True}, zlib.compress(json.dumps([file_row("a.py")]).encode()))
        assert session.receive() == ({"missing": [SHA]}, b"")
        assert session.receive() == ({"beat": 1, "steps": 1}, b"")


def test_leftovers_of_a_broken_transfer_are_swept(tmp_path: Path) -> None:
    """What a killed sync left aside goes after a day; what is younger may still be written."""
    converse(tmp_path / "work", [file_row("a.py")], [BLOB])
    aside = tmp_path / "work/store/incoming"
    for name in ("old", "young"):
        (aside / name).write_bytes(b"half")
    os.utime(aside / "old", (time.time() - 90000,) * 2)
    converse(tmp_path / "work", [file_row("a.py")], [], run="another")
    assert {path.name for path in aside.iterdir()} == {"young"}


def test_a_work_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the way is one clear line, not a traceback."""
    (tmp_path / "file").touch()
    answer = converse(tmp_path / "file/work", [file_row("a.py")], [])
    assert answer["error"]["code"] == "CC-DISK-002"
    assert str(tmp_path / "file") in answer["error"]["message"]
    assert answer["error"]["traceback"] == ""


def test_a_node_waits_for_its_turn_before_it_looks(tmp_path: Path) -> None:
    """It names its work directory first; what another node brings meanwhile it does not ask for."""
    request = {
        "workdir": str(tmp_path / "work"),
        "run": None,
        "node": "gpu01",
        "node_rank": 0,
        "shared_home": True,
    }
    manifest = zlib.compress(json.dumps([file_row("a.py")]).encode())
    with Session("sync", request) as one, Session("sync", request) as other:
        for session in (one, other):
            session.send({"manifest": True}, manifest)
        places = [session.receive()[0]["workdir_id"] for session in (one, other)]  # type: ignore[index]  # it came
        assert places[0] == places[1] != ""
        one.send({"check_store": True})
        assert one.receive() == ({"missing": [SHA]}, b"")
        one.send(BLOB[0], zlib.compress(BLOB[1]))
        one.send({"done": True})
        assert one.receive() == ({"stored": True}, b"")
        other.send({"check_store": True})
        assert other.receive() == ({"missing": []}, b"")


def test_what_is_used_again_counts_as_used(tmp_path: Path) -> None:
    """A stored content that a sync relies on gets a new time, so that cleaning leaves it alone."""
    converse(tmp_path / "work", [file_row("a.py")], [BLOB])
    stored = tmp_path / "work/store" / SHA[:2] / SHA
    os.utime(stored, (time.time() - 90 * 86400,) * 2)
    before = time.time()
    converse(tmp_path / "work", [file_row("a.py")], [], run="another")
    assert stored.stat().st_mtime > before - 60


def test_a_sweep_minds_nobody_elses_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another sync has given its name since it was listed is none of ours."""
    aside, list_entries = tmp_path / "store" / "incoming", removal.list_entries
    aside.mkdir(parents=True, mode=0o700)
    (aside / "part").touch()
    os.utime(aside / "part", (0, 0))

    def list_and_rename(folder: str) -> Any:
        entries = list_entries(folder)
        (aside / "part").rename(tmp_path / "whole")
        return entries

    monkeypatch.setattr(removal, "list_entries", list_and_rename)
    with store.Store(str(tmp_path)):
        assert (tmp_path / "whole").exists()
