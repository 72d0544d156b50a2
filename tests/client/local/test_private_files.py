"""Our own directories on this machine: made for us alone, and what others have put there is not believed."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import clusterctl
from clusterctl.client.local.private_files import (
    NotOursError,
    append_own,
    check_base,
    check_private,
    claim_own,
    is_own,
    keep_newest,
    make_private,
    read_own,
    remove_older,
    write_once,
    write_own,
)
from clusterctl.client.sync import contents
from clusterctl.client.sync.contents import StatCache

PACKAGE = Path(clusterctl.__file__).parent


def test_the_newest_stay(tmp_path: Path) -> None:
    """The oldest go; a folder in between, or none at all, is no trouble."""
    for number in range(6):
        (tmp_path / f"{number}").touch()
        os.utime(tmp_path / f"{number}", (number, number))
    (tmp_path / "folder").mkdir()
    os.utime(tmp_path / "folder", (0, 0))
    keep_newest(tmp_path, 3)
    keep_newest(tmp_path / "none", 3)

    assert {path.name for path in tmp_path.iterdir()} == {"3", "4", "5", "folder"}


def test_trees_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    """Each source root has a file; a thousand projects do not make a thousand."""
    for number in range(contents.MAX_TREES + 5):
        cache = StatCache(tmp_path, b"/src/%d" % number)
        cache.remember("train.py", (1, 1, 1, number), "0" * 64)
        cache.save()

    assert len(list(tmp_path.iterdir())) == contents.MAX_TREES
    assert StatCache(tmp_path, b"/src/%d" % number).find("train.py", (1, 1, 1, number)) == "0" * 64


def test_what_we_make_is_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    """Each directory that was missing, not the last one only."""
    before = os.umask(0o002)
    try:
        make_private(tmp_path / "state" / "clusterctl" / "specs")
        make_private(tmp_path / "state" / "clusterctl" / "specs")
    finally:
        os.umask(before)
    made = [
        tmp_path / "state",
        tmp_path / "state" / "clusterctl",
        tmp_path / "state" / "clusterctl" / "specs",
    ]
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: folder.chmod(0o777),
        lambda folder: (folder.chmod(0o775), os.chown(folder, -1, 12345)),
        lambda folder: os.chown(folder, 12345, -1),
        lambda folder: (folder.rename(folder.with_name("elsewhere")), folder.symlink_to("elsewhere")),
        lambda folder: (folder.rename(folder.with_name("elsewhere")), folder.touch()),
    ],
    ids=["for all", "for a group", "another's", "a link", "a file"],
)
def test_a_directory_that_others_could_have_filled_is_refused(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """Before anything in it is read, and before anything is written into it; nothing changes."""
    folder = tmp_path / "ours"
    write_own(folder / "file", "ours")
    old = (folder / "file").stat().st_mtime
    try:
        spoil(folder)
    except PermissionError:
        pytest.skip("only root gives files away")
    before = sorted(tmp_path.rglob("*"))
    for use in (
        check_private,
        make_private,
        lambda folder: write_own(folder / "file", "new"),
        lambda folder: write_once(folder / "other", "new"),
        lambda folder: append_own(folder / "file", "new", 100),
    ):
        with pytest.raises(NotOursError) as refusal:
            use(folder)
        assert refusal.value.filename == str(folder)
    keep_newest(folder, 0)
    remove_older(folder, "*", old + 1)

    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "elsewhere" if folder.is_symlink() or folder.is_file() else folder).stat()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: (file.parent.chmod(0o755), file.chmod(0o666)),
        lambda file: os.chown(file, 12345, -1),
        lambda file: (file.rename(file.with_name("other")), file.symlink_to("other")),
        lambda file: (file.unlink(), os.mkfifo(file, 0o600)),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["for all", "another's", "a link", "a pipe", "a directory"],
)
def test_a_file_that_is_not_ours_is_neither_read_nor_added_to(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """A link leads anywhere, and a pipe would never end."""
    file = tmp_path / "ours" / "file"
    write_own(file, "ours")
    assert (read_own(file), is_own(file)) == (b"ours", True)
    try:
        spoil(file)
    except PermissionError:
        pytest.skip("only root gives files away")
    with pytest.raises(OSError):
        read_own(file)
    with pytest.raises(OSError):
        append_own(file, "more", 100)
    assert not is_own(file)


def test_a_mode_alone_is_no_reason(tmp_path: Path) -> None:
    """Older versions wrote by the umask, into a directory that nothing else can enter."""
    write_own(tmp_path / "ours" / "id", "ab12\n")
    (tmp_path / "ours" / "id").chmod(0o666)
    assert read_own(tmp_path / "ours" / "id") == b"ab12\n"


def test_the_directory_that_ours_are_in(tmp_path: Path) -> None:
    """Root's will do, and one like /tmp; one that others can rename things in will not."""
    check_base(tmp_path / "missing")
    check_base(Path("/"))
    tmp_path.chmod(0o1777)
    check_base(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(NotOursError, match="can be written by other users"):
        check_base(tmp_path)


def test_sizes_are_bounded(tmp_path: Path) -> None:
    """Of what is read, and of what is added to again and again."""
    file = tmp_path / "file"
    for _ in range(10):
        append_own(file, "x" * 50, 100)
    assert file.stat().st_size == 100
    assert read_own(file, 100) == b"x" * 100
    with pytest.raises(NotOursError, match="larger than 99"):
        read_own(file, 99)


def test_one_alone_takes_and_one_alone_writes(tmp_path: Path) -> None:
    """The first text stays, the file is taken once, and nothing is left over."""
    file = tmp_path / "file"
    for text in ("first", "second"):
        write_once(file, text)
    assert read_own(file) == b"first"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [claim_own(file), claim_own(file)] == [True, False]
    assert list(tmp_path.iterdir()) == []


OPENERS = {
    *("open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "makedirs", "touch"),
    *("rename", "replace_file", "unlink", "remove", "rmtree", "symlink_to", "hardlink_to", "mkstemp", "link"),
}
# Modules, or functions of them, that get one of our directories and open other files too, and which.
OTHERS = {
    "cli/context/code.py": "the script that is to be run, which is the user's",
    "cli/context/load.py": "the inventory and the job, which are the user's",
    "client/local/hooks.py:claim_stall": "an empty file that must not be there yet, in a folder verified before",
    "client/files/target_dir.py": "the directory of `pull`, by descriptors of its own",
    "client/sync/contents.py:open_inside": "the code that is sent",
}


def test_no_other_account_opens_files_in_our_directories() -> None:
    """Whoever knows where they are, or writes through `private_files`, opens nothing by himself."""
    users = {name: tree for name, tree in _modules() if _uses_our_directories(tree)}
    assert {
        "client/local/hooks.py",
        "client/sync/contents.py",
    } < set(users)
    assert {
        "cli/context/load.py",
        "cli/actions/notify.py",
        "client/files/target_dir.py",
    } < set(users)
    found = {f"{name}:{function}" for name, tree in users.items() for function in _openers(tree)}
    allowed = {one for one in found if one in OTHERS or one.partition(":")[0] in OTHERS}
    assert found == allowed
    assert {one.partition(":")[0] for one in OTHERS} <= set(users)


def test_only_one_module_knows_where_they_are() -> None:
    """No one can come by another way."""
    knowing = {
        name
        for name, tree in _modules()
        for node in ast.walk(tree)
        if (isinstance(node, ast.alias) and node.name in ("platformdirs", "user_state_path"))
        or (isinstance(node, ast.Constant) and node.value in ("XDG_STATE_HOME", ".local/state"))
    }
    assert knowing == {"cli/context/load.py"}


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for layer in ("specs", "plans", "client", "console", "cli"):
        for file in sorted((PACKAGE / layer).rglob("*.py")):
            yield file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def _uses_our_directories(tree: ast.Module) -> bool:
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    sources = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return bool(names & {"state_dir", "crash_dir"}) or "clusterctl.client.local.private_files" in sources


def _openers(tree: ast.AST, function: str = "") -> Iterator[str]:
    """Name the functions that open files."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            if name in OPENERS:
                yield function
        yield from _openers(node, node.name if isinstance(node, ast.FunctionDef) else function)
