"""What a node records of staged content, how it finds it later, and what it removes of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from staging import (
    CONTENTS,
    SOURCE,
    model_rows,
    next_answer,
    open_take,
    rows_of,
    send_blob,
    staged,
    take,
)
from waiting import wait_until

from clusterctl.node.verbs.clean import open_existing_workdir


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
        **SOURCE, "path": str(model), "files": 2, "bytes": 9, "state": "whole", "differing": 0, "problems": []
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
    assert (record["state"], first_problem(record)) == (state, problem)
    (record,) = staged(tmp_path, verify=True, sources=[SOURCE["source"]])
    assert (record["state"], first_problem(record)) == (
        ("changed", "model/blobs/one") if state == "whole" else (state, problem)
    )
    assert staged(tmp_path, sources=["hf://org/other"]) == []


def first_problem(record: dict[str, Any]) -> str:
    """Return the first file that is not as it was."""
    return next((problem["path"] for problem in record["problems"]), "")


def test_all_files_that_differ_are_counted(tmp_path: Path) -> None:
    """The first of them are named, each with what became of it."""
    take(tmp_path, tmp_path)
    (tmp_path / "model/blobs/one").write_bytes(b"longer")
    (tmp_path / "model/blobs/two").unlink()
    (record,) = staged(tmp_path)
    assert (record["state"], record["differing"]) == ("changed", 3)
    assert [(one["path"], one["state"]) for one in record["problems"]] == [
        ("model/blobs/one", "changed"),
        ("model/blobs/two", "missing"),
        ("model/snapshots/1/weights", "dangling"),
    ]


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """As one into a cache that is not on this node."""
    rows = [*model_rows(), ["model/config", "link", 0, "/nowhere/config", 0]]
    take(tmp_path, tmp_path, rows)
    (record,) = staged(tmp_path)
    assert (record["state"], first_problem(record)) == ("dangling", "model/config")


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
    assert not [path for path in (tmp_path / "work/staged").rglob("*") if path.suffix in (".json", ".rows")]


def test_a_directory_of_the_stage(tmp_path: Path) -> None:
    """`${stage_dir}` is below the work directory; what is in a directory has its name."""
    take(tmp_path, Path("${stage_dir}/corpus"), model_rows("2026"), name="")
    (record,) = staged(tmp_path)
    assert record["path"] == str(tmp_path / "work/stage/corpus")
    assert (tmp_path / "work/stage/corpus/2026/blobs/one").read_bytes() == b"one"
    assert record["state"] == "whole"


def test_what_is_being_staged_is_not_removed(tmp_path: Path) -> None:
    """Who does it is named; the content stays."""
    take(tmp_path, tmp_path)
    (tmp_path / "model/blobs/one").unlink()
    with open_take(tmp_path, tmp_path, model_rows()) as session:
        assert next_answer(session, "missing")["missing"]
        report = staged(tmp_path, do="remove")
        assert report["failed"] == [[str(tmp_path / "model"), "ann@laptop (gpu01) is staging to it"]]
        session.process.kill()
    assert (tmp_path / "model/blobs/two").exists()


def test_what_was_there_before_is_not_removed(tmp_path: Path) -> None:
    """As on the node that is the source itself, or a library's own cache: also after it was staged again."""
    blobs = tmp_path / "model/blobs"
    blobs.mkdir(parents=True)
    (blobs / "one").write_bytes(b"one")
    os.utime(blobs / "one", (1_580_000_000,) * 2)
    (tmp_path / "model/snapshots/1").mkdir(parents=True)
    (tmp_path / "model/snapshots/1/weights").symlink_to("../../blobs/two")
    assert take(tmp_path, tmp_path)["copied"]["files"] == 1
    assert take(tmp_path, tmp_path)["copied"]["files"] == 0
    assert staged(tmp_path, do="remove") == {"runs": 0, "bytes": 6, "contents": 1, "failed": []}
    assert [path.name for path in blobs.iterdir()] == ["one"]
    assert (tmp_path / "model/snapshots/1/weights").is_symlink()
    assert staged(tmp_path) == []


def test_an_empty_directory_of_the_user_stays(tmp_path: Path) -> None:
    """Of two the one that was staged is removed."""
    rows = [*model_rows(), ["model/old", "dir", 0, "", 0], ["model/new", "dir", 0, "", 0]]
    (tmp_path / "model/old").mkdir(parents=True)
    take(tmp_path, tmp_path, rows)
    staged(tmp_path, do="remove")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["old"]


@pytest.mark.parametrize("way", ["cp -p", "in place", "mv"])
def test_a_file_that_replaces_one_is_not_removed(tmp_path: Path, way: str) -> None:
    """It has the size and the mtime of the one that was staged, or an older one."""
    take(tmp_path, tmp_path)
    two, own = tmp_path / "model/blobs/two", tmp_path / "own"
    own.write_bytes(b"SECOND")
    os.utime(own, ns=(0, two.stat().st_mtime_ns))
    if way == "cp -p":
        shutil.copy2(own, two)
    elif way == "mv":
        own.rename(two)
    else:
        mtime = two.stat().st_mtime_ns
        two.write_bytes(b"SECOND")
        os.utime(two, ns=(0, mtime))
    assert staged(tmp_path, do="remove")["contents"] == 2
    assert two.read_bytes() == b"SECOND"
    assert not (two.parent / "one").exists()


def test_what_came_before_an_interrupt_is_removed_too(tmp_path: Path) -> None:
    """The command that continued it found the first file there, and has written only the second."""
    with open_take(tmp_path, tmp_path, model_rows()) as session:
        next_answer(session, "missing")
        send_blob(session, b"one")
        wait_until((tmp_path / "model/blobs/one").exists, "the first is there")
        assert session.process.stdin is not None
        session.process.stdin.close()
        session.process.wait()
    assert take(tmp_path, tmp_path)["copied"]["files"] == 1
    assert staged(tmp_path, do="remove")["contents"] == 3
    assert not (tmp_path / "model").exists()


def cache_rows(revision: str, *blobs: str) -> list[list[Any]]:
    """Return the manifest of a revision in a hub's cache."""
    rows = rows_of({f"model/blobs/{name}": CONTENTS[f"blobs/{name}"] for name in blobs})
    return rows + [
        [f"model/snapshots/{revision}/{name}", "link", 0, f"../../blobs/{name}", 0] for name in blobs
    ]


def test_two_revisions_of_a_model(tmp_path: Path) -> None:
    """Each has its record; a file that both have goes with the last of them."""
    first, second = ({**SOURCE, "source": f"hf://org/model@{name}", "revision": name} for name in "ab")
    take(tmp_path, tmp_path, cache_rows("a", "one", "two"), staged=first)
    take(tmp_path, tmp_path, cache_rows("b", "one"), staged=second)
    assert {(one["revision"], one["state"]) for one in staged(tmp_path)} == {("a", "whole"), ("b", "whole")}
    assert staged(tmp_path, do="remove", sources=[first["source"]])["contents"] == 3
    assert [(one["revision"], one["state"]) for one in staged(tmp_path)] == [("b", "whole")]
    assert [path.name for path in (tmp_path / "model/snapshots").iterdir()] == ["b"]
    assert staged(tmp_path, do="remove")["contents"] == 2
    assert not (tmp_path / "model").exists()


def test_a_revision_in_the_place_of_another(tmp_path: Path) -> None:
    """As plain files in a directory: nothing of the first is left, nor its record."""
    take(tmp_path, tmp_path, rows_of({"model/weights": b"one"}), staged={**SOURCE, "revision": "a"})
    take(tmp_path, tmp_path, rows_of({"model/weights": b"second"}), staged={**SOURCE, "revision": "b"})
    assert [(one["revision"], one["bytes"]) for one in staged(tmp_path)] == [("b", 6)]
    assert staged(tmp_path, do="remove")["contents"] == 1
    assert not (tmp_path / "model").exists()


def test_clean_works_after_a_stage_alone(tmp_path: Path) -> None:
    """The work directory has its mark, though no run was ever there."""
    take(tmp_path, tmp_path)
    assert open_existing_workdir(str(tmp_path / "work")) == str(tmp_path / "work")
