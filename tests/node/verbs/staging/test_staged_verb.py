"""What a node records of staged content, how it finds it later, and what it removes of it."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from session import Session

SOURCE = {"source": "hf://org/model@main", "revision": "9e165c3", "tree": "f" * 64, "by": "ann@laptop"}
CONTENTS = {"blobs/one": b"one", "blobs/two": b"second"}


def rows_of(top: str) -> list[list[Any]]:
    """Return the manifest of a small model as a cache holds it."""
    rows: list[list[Any]] = [
        [f"{top}/{name}", "file", 0o644, hashlib.sha256(data).hexdigest(), len(data)]
        for name, data in CONTENTS.items()
    ]
    return [*rows, [f"{top}/snapshots/1/weights", "link", 0, "../../blobs/two", 0]]


def take(home: Path, target: Path, rows: list[list[Any]] | None = None, **how: Any) -> dict[str, Any]:
    """Stage files from here; returns the last frame before the end."""
    request = {
        "workdir": str(home / "work"),
        "node": "gpu01",
        "run": "",
        "path": str(target),
        "name": "model",
    }
    how = {"folder": True, "overwrite": False, "private": False, "provide": None, "staged": SOURCE, **how}
    with Session("take", {**request, **how}) as session:
        session.send({"manifest": True}, zlib.compress(json.dumps(rows or rows_of("model")).encode()))
        header, _ = session.receive() or ({}, b"")
        for data in CONTENTS.values():
            sha = hashlib.sha256(data).hexdigest()
            if sha in header["missing"]:
                session.send({"blob": sha, "at": 0, "last": True}, zlib.compress(data))
        if header["missing"]:
            session.send({"done": True})
        frame: dict[str, Any] = session.frames()[-2][0]
        return frame


def staged(home: Path, **how: Any) -> Any:
    """Ask what was staged, or have it removed."""
    request = {"workdir": str(home / "work"), "node": "gpu01", "do": "list", "paths": [], "verify": False}
    with Session("staged", {**request, **how}) as session:
        frame = session.frames()[-2][0]
        return frame.get("staged", frame.get("removed"))


def test_what_is_staged_is_recorded_and_replaces_other_content(tmp_path: Path) -> None:
    """One record for a path, also where it is staged again; files that are there besides stay."""
    model = tmp_path / "cache/model"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs/one").write_bytes(b"old")
    (model / "blobs/mine").touch()
    first = take(tmp_path, tmp_path / "cache")
    assert first["copied"] | {"kept": []} == {
        "files": 2, "bytes": 9, "unchanged": 0, "replaced": 1, "kept": [], "kept_count": 0
    }  # fmt: skip
    assert take(tmp_path, tmp_path / "cache")["copied"]["unchanged"] == 2
    (record,) = staged(tmp_path)
    assert record.pop("time") > 0
    assert record == {
        **SOURCE, "path": str(model), "files": 2, "bytes": 9, "state": "whole", "problem": ""
    }  # fmt: skip
    assert sorted(path.name for path in (model / "blobs").iterdir()) == ["mine", "one", "two"]


def test_what_was_not_staged_leaves_no_record(tmp_path: Path) -> None:
    """As `cp` does; and it replaces nothing."""
    (tmp_path / "model/blobs").mkdir(parents=True)
    (tmp_path / "model/blobs/one").write_bytes(b"old")
    assert take(tmp_path, tmp_path, staged=None)["copied"]["kept"] == ["model/blobs/one"]
    assert staged(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "state", "problem"),
    [
        (lambda model: (model / "blobs/two").unlink(), "missing", "model/blobs/two"),
        (lambda model: (model / "blobs/two").write_bytes(b"more than that"), "changed", "model/blobs/two"),
        (lambda model: (model / "snapshots").rename(model / "old"), "missing", "model/snapshots/1/weights"),
        (lambda model: (model / "blobs/one").write_bytes(b"ONE"), "whole", ""),
    ],
)
def test_what_became_of_it(tmp_path: Path, change: Any, state: str, problem: str) -> None:
    """The first file that is not as it was is named; what has its size is read only with `verify`."""
    take(tmp_path, tmp_path)
    change(tmp_path / "model")
    (record,) = staged(tmp_path)
    assert (record["state"], record["problem"]) == (state, problem)
    (record,) = staged(tmp_path, verify=True)
    assert (record["state"], record["problem"]) == (
        ("changed", "model/blobs/one") if state == "whole" else (state, problem)
    )


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """As one into a cache that is not on this node."""
    rows = [*rows_of("model"), ["model/config", "link", 0, "/nowhere/config", 0]]
    take(tmp_path, tmp_path, rows)
    (record,) = staged(tmp_path)
    assert (record["state"], record["problem"]) == ("dangling", "model/config")


def test_removal_leaves_what_was_not_staged(tmp_path: Path) -> None:
    """Nor what was changed since; through a link nothing is removed."""
    outside = tmp_path / "outside"
    take(tmp_path, tmp_path)
    (tmp_path / "model/snapshots").rename(outside)
    (tmp_path / "model/snapshots").symlink_to(outside)
    (tmp_path / "model/blobs/one").write_bytes(b"changed")
    (tmp_path / "model/mine").touch()
    report = staged(tmp_path, do="remove", paths=[str(tmp_path / "model")])
    assert report == {"runs": 0, "bytes": 6, "contents": 1, "failed": []}
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"blobs", "mine", "snapshots"}
    assert (outside / "1/weights").is_symlink()
    assert staged(tmp_path) == []


def test_removal_of_all_of_it(tmp_path: Path) -> None:
    """Nothing of it is left, also no directory; what is beside it stays."""
    take(tmp_path, tmp_path / "cache")
    staged(tmp_path, do="remove", paths=["/elsewhere"])
    assert (tmp_path / "cache/model").is_dir()
    staged(tmp_path, do="remove")
    assert list((tmp_path / "cache").iterdir()) == []
    assert list((tmp_path / "work/staged").iterdir()) == []


def test_a_directory_of_the_stage(tmp_path: Path) -> None:
    """`${stage_dir}` is below the work directory; what is in a directory has its name."""
    take(tmp_path, Path("${stage_dir}/corpus"), rows_of("2026"), name="")
    (record,) = staged(tmp_path)
    assert record["path"] == str(tmp_path / "work/stage/corpus")
    assert (tmp_path / "work/stage/corpus/2026/blobs/one").read_bytes() == b"one"
    assert record["state"] == "whole"
