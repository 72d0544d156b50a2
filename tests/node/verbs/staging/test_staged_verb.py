"""What a node records of staged content, how it finds it later, and what it removes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from staging import SOURCE, model_rows, next_answer, open_take, staged, take


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
    assert not [path for path in (tmp_path / "work/staged").iterdir() if path.suffix in (".json", ".rows")]


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
