"""The words of `cp`, what a node may give, and who gives what when files are gathered."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.sync.listed_files import (
    CopyPath,
    ListedEntry,
    parse_copy_path,
    parse_copy_paths,
    plan_gather,
    plan_relay,
)
from clusterctl.plans.sync.manifest import make_manifest
from clusterctl.protocol.manifest import TreeEntry

SHA, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("text", "copy_path", "name", "is_folder"),
    [
        ("gpu01:ckpt/last.pt", CopyPath("gpu01", "ckpt/last.pt"), "last.pt", False),
        ("gpu[02-03]:/data/", CopyPath("gpu[02-03]", "/data/"), "data", True),
        ("all:", CopyPath("all", ""), "", True),
        ("gpu01:dir/.", CopyPath("gpu01", "dir/."), "", True),
        ("gpu01:${output_dir}", CopyPath("gpu01", "${output_dir}"), "", True),
        ("gpu01:a:b", CopyPath("gpu01", "a:b"), "a:b", False),
        ("data.tar", CopyPath(None, "data.tar"), "data.tar", False),
        ("./a:b", CopyPath(None, "./a:b"), "a:b", False),
        ("x/a:b", CopyPath(None, "x/a:b"), "a:b", False),
        (":a", CopyPath(None, ":a"), ":a", False),
        ("..", CopyPath(None, ".."), "", True),
    ],
)
def test_a_word_is_a_path_here_or_on_nodes(
    text: str, copy_path: CopyPath, name: str, is_folder: bool
) -> None:
    """A colon after the name of nodes makes the difference, as for scp."""
    parsed = parse_copy_path(text)
    assert (parsed, parsed.name, parsed.is_folder) == (copy_path, name, is_folder)


@pytest.mark.parametrize(
    ("path", "below"),
    [("", "gpu01/"), ("logs", "logs/gpu01/"), ("logs/", "logs/gpu01/"), ("/", "/gpu01/"), ("~", "~/gpu01/")],
)
def test_a_directory_for_each_source(path: str, below: str) -> None:
    """In the home directory, not in the root, where no path is given."""
    assert CopyPath("gpu09", path).below("gpu01") == below


@pytest.mark.parametrize(
    ("sources", "target", "text"),
    [(["a", "b"], "c", "all on this machine"), (["a", "gpu01:b"], "c", "some sources are on this machine")],
)
def test_words_that_cannot_be_meant(sources: list[str], target: str, text: str) -> None:
    """Nothing on a node, or sources of both kinds."""
    with pytest.raises(UsageError, match=text):
        parse_copy_paths(sources, target)


def entry(path: str, kind: str = "file", content: str = SHA, mode: int = 0o644, size: int = 1) -> ListedEntry:
    """Make what a node lists."""
    return ListedEntry(0, path, kind, size, (size, 1, 1, 1), content, 0, mode if kind == "file" else None)


def test_what_a_node_gives() -> None:
    """Modes become 644 or 755, private files are noticed; what leads out, or is below a link, is not passed on."""
    plan = plan_relay(
        [
            entry("d/run", mode=0o750),
            entry("d/key", content=OTHER, mode=0o600),
            entry("d/socket", "other", "", size=0),
            entry("d/evil", "link", "/etc/passwd", size=0),
            entry("d/up", "link", "../../x", size=0),
            entry("d/near", "link", "run", size=0),
            entry("d/near/x"),
            entry("d/run", content=OTHER),
            entry("d/../../x"),
            entry("d/empty", "dir", "", size=0),
        ]
    )
    assert [(one.path, one.kind, one.mode) for one in plan.manifest.entries] == [
        ("d/empty", "dir", 0),
        ("d/key", "file", 0o644),
        ("d/near", "link", 0),
        ("d/run", "file", 0o755),
    ]
    assert plan.left_out == ("d/socket", "d/evil", "d/up", "d/near/x", "d/run", "d/../../x")
    assert plan.private


@pytest.mark.parametrize(
    "wrong",
    [entry("d/x", content="short"), entry("d/\udcff"), entry("d/x", "dir", "content"), entry("d", "dir", "")],
)
def test_what_a_node_must_not_give(wrong: ListedEntry) -> None:
    """What no receiver would take is an error of the node that gives it."""
    with pytest.raises(ValueError, match=r"\w"):
        plan_relay([entry("d/y"), wrong])


def part(path: str, content: str = SHA) -> TreeEntry:
    """Make a file of a checkpoint."""
    return TreeEntry(path, "file", 0o644, content, 1)


def test_every_node_gets_the_parts_of_the_others() -> None:
    """The first that has a file gives it, and only to those that lack it."""
    plan = plan_gather(
        {
            "gpu01": make_manifest([part(".metadata"), part("__0_0.distcp")]),
            "gpu02": make_manifest([part("__1_0.distcp"), part(".metadata")]),
            "gpu03": make_manifest([]),
        }
    )
    given = [
        (name, others, [entry.path for entry in manifest.entries]) for name, others, manifest in plan.parts
    ]
    assert given == [
        ("gpu01", ("gpu02",), ["__0_0.distcp"]),
        ("gpu01", ("gpu03",), [".metadata", "__0_0.distcp"]),
        ("gpu02", ("gpu01", "gpu03"), ["__1_0.distcp"]),
    ]
    assert plan.conflicts == ()


def test_what_programs_act_on_is_not_gathered() -> None:
    """A node could add a hook to the repository of another, which git runs there; what all have needs no word."""
    common = part("proj/.git/config")
    plan = plan_gather(
        {
            "gpu01": make_manifest(
                [common, part(".ssh/rc"), part("proj/.GIT/hooks/post-checkout"), part(".gitignore")]
            ),
            "gpu02": make_manifest([common, part(".ssh/rc", OTHER)]),
            "gpu03": make_manifest([common, part(".hg/hgrc")]),
        }
    )
    given = [
        (name, others, [entry.path for entry in manifest.entries]) for name, others, manifest in plan.parts
    ]
    assert given == [("gpu01", ("gpu02", "gpu03"), [".gitignore"])]
    assert plan.conflicts == (".ssh/rc",)
    assert plan.left_out == {"gpu01": ("proj/.GIT/hooks/post-checkout",), "gpu03": (".hg/hgrc",)}


def test_files_that_differ_are_not_gathered() -> None:
    """Neither of them is right for certain: no node gets one."""
    plan = plan_gather(
        {
            "gpu01": make_manifest([part("same"), part("log")]),
            "gpu02": make_manifest([part("same"), part("log", OTHER)]),
            "gpu03": make_manifest([part("same")]),
        }
    )
    assert (plan.parts, plan.conflicts) == ((), ("log",))
