"""Another account on the user's own machine: what it puts where we keep our things is not believed, and never run.

As root the other account is uid 65534. An ordinary user cannot give files away: there the same is tried with
directories that everybody may write, and with links.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from ground import CONTROLS, Ground, Seen, World

from clusterctl.client.files.node_files import NodeListing
from clusterctl.client.files.target_dir import name_shared_homes
from clusterctl.client.sync.contents import StatCache
from clusterctl.plans.sync.listed_files import META_FOLDER

STRANGER = 65534
OWNER = "0123456789abcdef"
_numbers = count()
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another account")


@pytest.fixture
def world(ground: Ground) -> Iterator[World]:
    """A world without a canary that sang; every command in it ends in order."""
    made = ground.world(f"account-{next(_numbers)}")
    yield made
    assert list((made.folder / "canary").iterdir()) == [], "what another account wrote was run"


def give_away(*places: Path) -> None:
    """Let the other account own something, where that can be done."""
    if os.geteuid() == 0:
        for place in places:
            os.chown(place, STRANGER, STRANGER, follow_symlinks=False)


def in_order(seen: Seen) -> Seen:
    """Check what holds for every command, whatever it found in our directories."""
    assert seen.ended
    assert "Traceback" not in seen.both, seen.both
    assert "CC-BUG" not in seen.both, seen.both
    assert not CONTROLS.search(seen.both)
    assert seen.code == 0 or "error CC-" in seen.err, seen.both
    return seen


# where the state directory may be in other hands

Prepare = Callable[[World, Path], None]


def foreign_home_of_states(world: World, hook: Path) -> None:
    """XDG_STATE_HOME and all below it belong to someone else, who lets everybody write."""
    give_away(hook, hook.parent, hook.parent.parent, world.folder / "state")
    (world.folder / "state").chmod(0o777)
    hook.parent.parent.chmod(0o777)
    hook.parent.chmod(0o777)
    hook.chmod(0o644)


def foreign_folder(_: World, hook: Path) -> None:
    """Only our own folder in it does."""
    give_away(hook, hook.parent, hook.parent.parent)
    hook.parent.parent.chmod(0o755)
    hook.parent.chmod(0o777)


def foreign_ends(_: World, hook: Path) -> None:
    """Only the folder of hooks does."""
    give_away(hook, hook.parent)
    hook.parent.chmod(0o777)


def foreign_file(_: World, hook: Path) -> None:
    """The folder is ours, but everybody could write into it, and someone did."""
    hook.parent.chmod(0o777)
    give_away(hook)


def open_folder(_: World, hook: Path) -> None:
    """The file seems to be ours, but lies where everybody could have put a link to it."""
    hook.parent.parent.chmod(0o777)
    hook.parent.chmod(0o777)


def linked_file(world: World, hook: Path) -> None:
    """A link leads to a file of ours that is a hook by its form."""
    hook.rename(world.folder / "work/elsewhere.json")
    hook.symlink_to(world.folder / "work/elsewhere.json")
    hook.parent.chmod(0o777)
    give_away(hook)


def linked_folder(world: World, hook: Path) -> None:
    """Our folder is a link into someone else's."""
    ours, theirs = hook.parent.parent, world.folder / "theirs"
    ours.rename(theirs)
    ours.symlink_to(theirs)
    give_away(theirs / "ends" / hook.name, theirs / "ends", theirs, ours)
    (theirs / "ends").chmod(0o777)
    theirs.chmod(0o777)


WITHOUT_ROOT = (open_folder, linked_folder)
WITH_ROOT = (foreign_home_of_states, foreign_folder, foreign_ends, foreign_file, linked_file)


@pytest.mark.parametrize(
    "prepare",
    [*WITHOUT_ROOT, *(pytest.param(one, marks=as_root) for one in WITH_ROOT)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_planted_hook_is_not_run(ground: Ground, world: World, prepare: Prepare) -> None:
    """A hook file that someone else can have written is never run, and the run has its verdict all the same."""
    hook = world.folder / f"state/clusterctl/ends/{ground.runs['demo']}.json"
    hook.write_text(world.hook, encoding="ascii")
    (world.folder / "canary").chmod(0o777)
    prepare(world, hook)

    in_order(world.run(["attach", ground.runs["demo"]]))


def test_our_own_hook_is_run(ground: Ground, world: World) -> None:
    """The canary can sing: what is refused above is refused for its owner and place, not for its form."""
    hook = world.folder / f"state/clusterctl/ends/{ground.runs['demo']}.json"
    hook.write_text(world.hook, encoding="ascii")
    hook.chmod(0o600)

    assert in_order(world.run(["attach", ground.runs["demo"]])).code == 0

    (song,) = (world.folder / "canary").iterdir()
    song.unlink()


@as_root
def test_a_planted_id_makes_nobodys_runs_ours(world: World) -> None:
    """Who `we` are is not for someone else to write down."""
    mine = world.folder / "state/clusterctl/id"
    assert mine.read_text().strip() == OWNER
    mine.parent.chmod(0o777)
    give_away(mine)
    name = {"LOGNAME": "mallory", "USER": "mallory"}

    seen = world.run(["ps", "--json"], **name)

    assert (seen.code, [document["error"]["code"] for document in seen.documents]) == (2, ["CC-USE-041"])
    assert "CC-USE-041" in seen.err
    assert str(mine.parent) in seen.err


@as_root
def test_planted_hashes_are_not_believed(tmp_path: Path) -> None:
    """A cache of file hashes that another account owns is not read."""
    stamp = (1, 1, 1, 1)
    cache = StatCache(tmp_path / "trees", b"/src")
    cache.remember("train.py", stamp, "0" * 64)
    cache.save()
    assert StatCache(tmp_path / "trees", b"/src").find("train.py", stamp) == "0" * 64

    (file,) = (tmp_path / "trees").iterdir()
    give_away(file)

    assert StatCache(tmp_path / "trees", b"/src").find("train.py", stamp) is None


@as_root
@pytest.mark.parametrize(("owner", "name"), [(-1, "planted"), (STRANGER, "gpu01")])
def test_planted_names_of_homes_are_not_believed(tmp_path: Path, owner: int, name: str) -> None:
    """The name of a shared home is read from a file of ours, and not from one that another account owns."""
    folder = tmp_path / META_FOLDER
    folder.mkdir(mode=0o700)
    (folder / "homes.json").write_text(json.dumps({"ID": ["planted", ["gpu01"]]}), encoding="ascii")
    os.chown(folder / "homes.json", owner, -1)

    listed = {"gpu01": NodeListing((), "m", "ID")}

    assert name_shared_homes([["gpu01"]], listed, tmp_path) == {"gpu01": name}
