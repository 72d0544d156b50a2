"""The files of a checkpoint: which node sends what, what is missing, and what no node may claim."""

from __future__ import annotations

import pytest

from clusterctl.plans.sync.checkpoint_files import assign_files, merge_parts
from clusterctl.plans.sync.listed_files import ListedEntry


def listed(path: str, content: str = "aa", size: int = 10, kind: str = "file") -> ListedEntry:
    """Return one row of a node."""
    return ListedEntry(0, path, kind, size, (size, 1, 1, 1), content, source=0)


def test_a_file_comes_once_from_a_node_that_has_it() -> None:
    """Copies count once, and the load is divided; what a node could not send comes from the next."""
    files = merge_parts(
        "step-3",
        {
            "gpu01": [
                listed("0/step-3/.metadata"),
                listed("0/step-3/0.pt", "bb"),
                listed("1/step-3/1.pt", "cc"),
            ],
            "gpu02": [listed("1/step-3/1.pt", "cc")],
        },
    )
    assert (files.files, files.bytes, files.differing) == (3, 30, "")
    chosen = assign_files(files, (), ())
    assert {node: [entry.path for entry in entries] for node, entries in chosen.items()} == {
        "gpu01": ["step-3/.metadata", "step-3/0.pt"],
        "gpu02": ["step-3/1.pt"],
    }
    again = assign_files(files, ["step-3/.metadata"], ["gpu02"])
    assert {node: [entry.path for entry in entries] for node, entries in again.items()} == {
        "gpu01": ["step-3/0.pt", "step-3/1.pt"]
    }
    without = assign_files(
        files, ["step-3/.metadata"], (), {("gpu01", "step-3/1.pt"), ("gpu01", "step-3/0.pt")}
    )
    assert {node: [entry.path for entry in entries] for node, entries in without.items()} == {
        "gpu02": ["step-3/1.pt"]
    }, "what gpu01 sent wrong comes from the other node, or not at all"
    assert assign_files(files, files.holders, ()) == {}
    assert assign_files(files, (), ["gpu01", "gpu02"]) == {}


def test_what_each_rank_calls_the_same_goes_to_directories_of_their_own() -> None:
    """The same content is one file."""
    same = {"gpu01": [listed("0/step-3/config")], "gpu02": [listed("1/step-3/config")]}
    assert list(merge_parts("step-3", same).holders) == ["step-3/config"]
    assert merge_parts("step-3", same).files == 2, "as the parts count it"

    other = {"gpu01": [listed("0/step-3/model.pt", "aa")], "gpu02": [listed("1/step-3/model.pt", "bb")]}
    files = merge_parts("step-3", other)
    assert list(files.holders) == ["node-0/step-3/model.pt", "node-1/step-3/model.pt"]
    assert not files.differing


def test_nodes_that_disagree_on_a_part_are_noticed() -> None:
    """Nothing shows which of them is right: a node is named for each content."""
    contents = {"gpu01": "aa", "gpu02": "bb", "gpu03": "bb"}
    files = merge_parts("s", {node: [listed("0/s", content)] for node, content in contents.items()})
    assert (files.differing, sorted(files.disputing)) == ("s", ["gpu01", "gpu02"])


@pytest.mark.parametrize(
    "path", ["0/step-30/x", "step-3/x", "0/../step-3", "x/step-3/x", "0/", "0/step-3x", "-1/step-3/x"]
)
def test_what_is_no_file_of_the_checkpoint_is_refused(path: str) -> None:
    """Nothing of another name, and no number that is none."""
    with pytest.raises(ValueError, match="no file of the checkpoint"):
        merge_parts("step-3", {"gpu01": [listed(path)]})
    with pytest.raises(ValueError, match="no file of the checkpoint"):
        merge_parts("step-3", {"gpu01": [listed("0/step-3", kind="other")]})


@pytest.mark.parametrize(
    "entry",
    [listed("0/step-3/../x"), listed("0/step-3//x"), listed("0/step-3/x", "/etc/passwd", kind="link")],
)
def test_what_leads_out_of_the_directory_is_refused(entry: ListedEntry) -> None:
    """The node is left out then: nothing else of it can be believed either."""
    with pytest.raises(ValueError, match="leads out"):
        merge_parts("step-3", {"gpu01": [entry]})
