"""Names that a node gives are judged before anything is written."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.plans.sync.listed_files import (
    FileSource,
    ListedEntry,
    find_path_problem,
    parse_listing,
    plan_download,
    stays_inside,
)
from clusterctl.protocol.untrusted import Row, parse_rows


def entry(path: str, kind: str = "file", target: str = "", index: int = 0) -> ListedEntry:
    """Make an entry."""
    return ListedEntry(index, path, kind, 1, (1, 2, 3, 4), target, 0)


def refused(*entries: ListedEntry, folds: bool = False) -> dict[str, str]:
    """Judge entries; gives what is not taken and why."""
    return {one.path: one.reason for one in plan_download(entries, ignores_case=folds).refused}


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../x",
        "a/../b",
        "/etc/passwd",
        "",
        ".",
        "a//b",
        "a/",
        "./a",
        "nul\0l",
        "\ud800",
        "x" * 256,
        "a/" * 2100,
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    """Whatever kind it is reported to have."""
    for kind in ("file", "dir", "link"):
        assert path in refused(entry(path, kind, "x"))


@pytest.mark.parametrize(
    "path", ["a", "a/b", "..a", "a..", "...", "~", "-rf", "a b", "\n", "\udcff", "\u4e2d"]
)
def test_odd_names_are_names(path: str) -> None:
    """What a job may well have written is taken."""
    assert refused(entry(path)) == {}


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("a", "b", True),
        ("a/b", "../c/d", True),
        ("a/b/c", "../../x", True),
        ("a", ".", True),
        ("a", "..", False),
        ("a/b", "../..", False),
        ("a", "/etc", False),
        ("a", "b/../c", False),
        ("a/l2", "b/c/l1/..", False),
        ("a", "", False),
        ("a", "x\0y", False),
        ("a", "\ud800", False),
    ],
)
def test_a_link_may_only_lead_to_what_is_beside_it(path: str, target: str, inside: bool) -> None:
    """The way up may only be its beginning: behind a name there may be another link."""
    assert stays_inside(path, target) is inside
    assert (path in refused(entry(path, "link", target))) is not inside


def test_one_name_is_one_thing() -> None:
    """Neither twice, nor a file and a directory, nor below a link."""
    assert "b" in refused(entry("b"), entry("b"))
    assert "a" in refused(entry("a/b"), entry("a"))
    assert "a/b" in refused(entry("a"), entry("a/b"))
    assert "l/x" in refused(entry("l", "link", "d"), entry("d", "dir"), entry("l/x"))
    assert refused(entry("a", "dir"), entry("a/b")) == {}
    assert "pipe" in refused(entry("pipe", "other"))


def test_names_that_differ_in_case_only_depend_on_the_file_system() -> None:
    """Where one would replace the other, only the first is taken."""
    pair = (entry("Model.pt"), entry("model.pt"), entry("caf\u00e9"), entry("cafe\u0301"))
    assert refused(*pair) == {}
    assert set(refused(*pair, folds=True)) == {"model.pt", "cafe\u0301"}


@pytest.mark.parametrize(
    "rows",
    [
        None,
        {},
        ["text"],
        [[]],
        [[0, "a", "file", 1, 2, 3, 4, ""]],
        [[0, "a", "file", -1, 2, 3, 4, "", 0]],
        [[0, "a", "file", "1", 2, 3, 4, "", 0]],
        [[0, "a", "file", 1.5, 2, 3, 4, "", 0]],
        [[0, "a", "file", True, 2, 3, 4, "", 0]],
        [[0, None, "file", 1, 2, 3, 4, "", 0]],
        [[0, "a", "socket", 1, 2, 3, 4, "", 0]],
        [[0, "a", "file", 1, 2, 3, 4, "", 0o1000]],
        [[1, "a", "file", 1, 2, 3, 4, "", 0]],
        [[-1, "a", "file", 1, 2, 3, 4, "", 0]],
        [["outputs", "a", "file", 1, 2, 3, 4, "", 0]],
        [[0, "a" * 5000, "file", 1, 2, 3, 4, "", 0]],
        [[0, "a", "link", 1, 2, 3, 4, "b" * 5000, 0]],
    ],
    ids=lambda rows: repr(rows)[:60],
)
def test_what_is_no_row_is_not_read(rows: Any) -> None:
    """One error, whatever it is."""
    with pytest.raises(ValueError, match=r"row|list"):
        list(parse_listing(parse_rows(json.dumps(rows).encode()), 0, [FileSource("path", "x", "x")]))


def test_logs_have_a_directory_of_their_own() -> None:
    """Outputs cannot be taken for logs: equal names collide and one is refused."""
    rows = [[0, "logs-x/a", "file", 1, 2, 3, 4, "", 0], [1, "a", "file", 1, 2, 3, 4, "", 0]]
    places = [FileSource("outputs", "digits", ""), FileSource("logs", "", "logs-x")]
    entries = list(parse_listing(map(Row, rows), 7, places))
    assert [(one.index, one.path, one.source) for one in entries] == [(7, "logs-x/a", 0), (8, "logs-x/a", 1)]
    assert refused(*entries) == {"logs-x/a": "listed twice"}


NAMES = st.sampled_from(["a", "b", "c", "..", ".", "", "/", "a/b", "b/c"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
WILD = st.one_of(PATHS, st.text(max_size=12))


@given(WILD)
def test_a_path_that_is_taken_stays_below(path: str) -> None:
    """However it is written."""
    if find_path_problem(path) == "":
        assert os.path.normpath(f"/home/x/{path}") == f"/home/x/{path}"
        assert "\0" not in path


@given(st.lists(st.tuples(PATHS, PATHS), max_size=8), st.booleans())
def test_no_set_of_links_leads_out(pairs: list[tuple[str, str]], folds: bool) -> None:
    """All links that are taken are really made; none of them, followed through the others, leaves the directory."""
    judged = plan_download(
        [entry(path, "link", target, n) for n, (path, target) in enumerate(pairs)], ignores_case=folds
    )
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve() / "top"
        top.mkdir()
        for link in judged.links:
            (top / link.path).parent.mkdir(parents=True, exist_ok=True)
            (top / link.path).symlink_to(link.content)
        for link in judged.links:
            try:
                end = (top / link.path).resolve(strict=True)
            except (OSError, RuntimeError):
                continue  # leads nowhere, or in a circle
            assert end == top or top in end.parents


@given(WILD, st.sampled_from(["path", "inside"]))
def test_a_node_does_not_choose_the_first_name(path: str, kind: str) -> None:
    """What it lists lies below the name that was asked for, unless what is in a directory was."""
    row = Row([0, path, "file", 1, 2, 3, 4, "", 0o600])
    place = FileSource(kind, "ckpt", "mine" if kind == "path" else "")
    (one,) = parse_listing([row], 0, [place])
    if find_path_problem(one.path) == "":
        assert one.path == path if kind == "inside" else one.path.split("/")[0] == "mine"


def test_modes_are_kept_only_where_that_is_wanted() -> None:
    """Results get the mode of a new file."""
    row = Row([0, "", "file", 1, 2, 3, 4, "", 0o640])
    places = [FileSource("path", "a", "b", modes=modes) for modes in (False, True)]
    assert [next(parse_listing([row], 0, [place])).mode for place in places] == [None, 0o640]
