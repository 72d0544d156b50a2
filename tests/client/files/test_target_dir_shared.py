"""Nodes that share a work directory, and those that say they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.client.files.node_files import NodeListing
from clusterctl.client.files.target_dir import (
    choose_fetching_node,
    group_by_workdir,
    name_shared_homes,
    prepare_target,
)

MARKS = {f"gpu0{number}": f"mark {number}" for number in range(1, 6)}


def listed(first: str, place: str = "id") -> NodeListing:
    """Make what a node reports that has found another one's mark."""
    return NodeListing((), MARKS.get(first, first), place)


def test_a_home_keeps_its_name_whichever_node_answers(tmp_path: Path) -> None:
    """Today its first node is off: the outputs go where they went before."""
    prepare_target(tmp_path)
    everybody = {name: listed("gpu02") for name in ("gpu01", "gpu02", "gpu03")}
    groups = group_by_workdir(everybody, MARKS)
    assert groups == [["gpu01", "gpu02", "gpu03"]]
    assert name_shared_homes(groups, everybody, tmp_path) == {"gpu01": "gpu01"}
    for rest in (["gpu02", "gpu03"], ["gpu03"]):
        some = {name: listed(rest[0]) for name in rest}
        assert name_shared_homes(group_by_workdir(some, MARKS), some, tmp_path) == {rest[0]: "gpu01"}


def test_machines_made_from_one_image_do_not_share(tmp_path: Path) -> None:
    """The same id, but each found its own mark."""
    prepare_target(tmp_path)
    clones = {name: listed(name) for name in ("gpu01", "gpu02")}
    assert name_shared_homes(group_by_workdir(clones, MARKS), clones, tmp_path) == {
        "gpu01": "gpu01",
        "gpu02": "gpu02",
    }


@pytest.mark.parametrize("lie", ["gpu02", "", "mark 2 ", "mark", "gpu05"])
def test_a_node_that_reports_it_shares_anothers_home_stands_alone(lie: str) -> None:
    """It can name the node, and not the mark that this node alone was given; so the other's outputs come too."""
    listings = {"gpu01": NodeListing((), lie, "id")}
    listings |= {
        name: listed(first) for name, first in (("gpu02", "gpu02"), ("gpu03", "gpu04"), ("gpu04", "gpu01"))
    }
    assert group_by_workdir(listings, MARKS) == [["gpu01"], ["gpu02"], ["gpu03"], ["gpu04"]]


def test_the_id_of_anothers_directory_gives_no_other_its_name(tmp_path: Path) -> None:
    """gpu05 was never seen to share that home; its files do not go where those of gpu01 lie."""
    prepare_target(tmp_path)
    shared = {name: listed("gpu01", "home") for name in ("gpu01", "gpu02")}
    name_shared_homes(group_by_workdir(shared, MARKS), shared, tmp_path)
    liar = {"gpu05": listed("gpu05", "home")}
    assert name_shared_homes(group_by_workdir(liar, MARKS), liar, tmp_path) == {"gpu05": "gpu05"}


def test_what_an_older_version_knew_of_homes_is_known(tmp_path: Path) -> None:
    """It kept the name alone."""
    prepare_target(tmp_path)
    (tmp_path / ".clusterctl/homes.json").write_text('{"id": "gpu02"}')
    both = {name: listed("gpu01") for name in ("gpu01", "gpu02")}
    assert name_shared_homes(group_by_workdir(both, MARKS), both, tmp_path) == {"gpu01": "gpu02"}


def test_a_damaged_list_of_homes_names_nothing(tmp_path: Path) -> None:
    """Nor does one in which a name leads elsewhere."""
    prepare_target(tmp_path)
    one = {"gpu02": listed("gpu02")}
    for text in ("", "[]", '{"id": "../x"}', '{"id": ""}'):
        (tmp_path / ".clusterctl/homes.json").write_text(text)
        assert name_shared_homes([["gpu02"]], one, tmp_path) == {"gpu02": "gpu02"}


def test_whose_name_the_outputs_have_downloads_them() -> None:
    """Two nodes must not write below one name at once: logs go there as well."""
    assert choose_fetching_node(["gpu01", "gpu02"], "gpu02") == "gpu02"
    assert choose_fetching_node(["gpu01", "gpu02"], "gpu07") == "gpu01"
