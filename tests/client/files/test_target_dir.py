"""The place of what is not a result, which several downloads into one directory share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterctl.client.files.target_dir import (
    PathOccupiedError,
    TargetDirectory,
    UsersDirectory,
    prepare_target,
    remove_meta,
)
from clusterctl.errors import LocalSystemError
from clusterctl.plans.sync.listed_files import META_FOLDER, plain_name


def test_a_second_download_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """It is refused, and what it removes at its end is not the place where files of the first arrive."""
    prepare_target(tmp_path)
    first = TargetDirectory(tmp_path, "", "cp-gpu01")
    with pytest.raises(LocalSystemError):
        TargetDirectory(tmp_path, "", "cp-gpu01")
    remove_meta(tmp_path, ["cp-gpu01"])
    assert (tmp_path / META_FOLDER / "cp-gpu01.parts").is_dir()
    with pytest.raises(LocalSystemError):
        TargetDirectory(tmp_path, "", "cp-gpu01")
    first.close()
    remove_meta(tmp_path, ["cp-gpu01"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("trap", ["link", "open", "foreign"])
def test_a_place_that_another_account_has_made_first_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, trap: str
) -> None:
    """In /tmp anybody can make one, and could then change files before they get their names."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(mode)
    (tmp_path / "aside").mkdir()
    meta = shared / META_FOLDER
    if trap == "link":
        meta.symlink_to(tmp_path / "aside")
    else:
        meta.mkdir()
        meta.chmod(0o777 if trap == "open" else 0o755)
    if trap == "foreign":
        monkeypatch.setattr(os, "geteuid", lambda: meta.stat().st_uid + 1)
    with pytest.raises(LocalSystemError, match=r"link|can be written|another account"):
        prepare_target(shared)
    assert not list((tmp_path / "aside").iterdir())


def test_the_place_in_a_directory_for_everyone_is_ours_alone(tmp_path: Path) -> None:
    """Whatever the umask; in a directory of a group it is as the umask wants it."""
    before = os.umask(0)
    try:
        for name, mode, expected in (("tmp", 0o1777, 0o700), ("group", 0o770, 0o777)):
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(mode)
            prepare_target(tmp_path / name)
            prepare_target(tmp_path / name)  # the second finds the first one's
            assert (tmp_path / name / META_FOLDER).stat().st_mode & 0o777 == expected
    finally:
        os.umask(before)


def test_a_disk_that_has_no_modes_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NTFS and FAT are often mounted with everything open to all: what is made there seems open to others."""

    def make_open(path: Path, mode: int = 0o777, **options: int) -> None:
        make_folder(path, mode, **options)
        os.chmod(path, 0o777)  # noqa: PTH101 - a name, as mkdtemp gives it

    make_folder = os.mkdir
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "mkdir", make_open)
    prepare_target(tmp_path)
    prepare_target(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [META_FOLDER]


def judge(folder: Path, users: UsersDirectory, *paths: str) -> list[str]:
    """Name the paths that are refused, looked for as a copy does before it requests anything."""
    prepare_target(folder)
    directory, refused = TargetDirectory(folder, "", "cp-gpu01", users), []
    try:
        for path in paths:
            try:
                directory.find(path)
            except PathOccupiedError:
                refused.append(path)
    finally:
        directory.close()
    return refused


def test_a_node_adds_nothing_to_what_programs_act_on(tmp_path: Path) -> None:
    """A hook in the user's repository would be run by git; what comes with a directory that is new is the node's."""
    for name in (".git", "mine", "mine/.git", "mine/plain"):
        (tmp_path / name).mkdir()
    bad = [".git/hooks/post-commit", ".GIT/config", ".ssh/authorized_keys", ".clusterctl/homes.json", ".git"]
    bad += [".g\u200cit/config", ".hg/hgrc", "mine/.git/hooks/x", "mine/plain/.git/config", ".Clusterctl. /x"]
    good = ["a", "mine/a", "new/.git/config", "new/deep/.ssh/config", ".bashrc", "mine/.bashrc", ".github/x"]
    assert judge(tmp_path, UsersDirectory(), *bad, *good) == bad
    assert judge(tmp_path, UsersDirectory({".git"}), ".git/config", "mine/.git/x") == ["mine/.git/x"]
    assert judge(tmp_path, UsersDirectory({".clusterctl"}), ".clusterctl/x") == [".clusterctl/x"]
    assert judge(tmp_path, UsersDirectory(is_home=True), ".bashrc", "mine/.bashrc") == [".bashrc"]
    assert judge(tmp_path, UsersDirectory(is_new=True), *bad[:5]) == [".clusterctl/homes.json"]


def test_a_copy_of_a_new_repository_can_be_resumed(tmp_path: Path) -> None:
    """Its `.git` comes last: when it is interrupted before, the directory is there and it is not."""
    assert judge(tmp_path, UsersDirectory({"proj"}), "proj/a", "proj/.git/config") == []
    (tmp_path / "proj/lib").mkdir(parents=True)
    later = ["proj/.git/config", "proj/lib/.git/config", "proj/.ssh/rc", ".git/config"]
    assert judge(tmp_path, UsersDirectory({"proj"}), *later) == later[1:]

    assert judge(tmp_path / "proj", UsersDirectory(is_new=True), ".git/config", ".clusterctl/x") == [
        ".clusterctl/x"
    ]
    assert judge(tmp_path / "proj", UsersDirectory(), ".git/config", ".hg/hgrc") == [".hg/hgrc"]


def test_names_that_a_file_system_takes_for_the_same() -> None:
    """One that ignores case, marks that are not shown, and dots at the end, or has short names of its own."""
    assert {plain_name(name) for name in (".git", ".GIT", ".g\u200cit", ".git.", ".gi\uff54", "GIT~1")} == {
        ".git"
    }
    assert [plain_name(name) for name in ("CLUSTE~12", "git", "legit~1")] == [".clusterctl", "git", "legit~1"]
