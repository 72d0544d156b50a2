"""An inventory that nobody named runs no command of another account; what was named is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typed import run

OTHER_ACCOUNT = 65534
INVENTORY = (
    "{cluster: c, nodes: [{host: 192.0.2.1, name: one, ssh: {config: CONFIG, proxy_command: COMMAND}}]}\n"
)

Plant = Callable[[Path], None]


def writable_file(folder: Path) -> None:
    """Make the inventory writable for all accounts."""
    (folder / "inventory.yaml").chmod(0o666)


def writable_directory(folder: Path) -> None:
    """Make the directory of the inventory writable for all accounts."""
    folder.chmod(0o777)


def foreign_file(folder: Path) -> None:
    """Change the owner of the inventory, in a directory of ours, to another account."""
    os.chown(folder / "inventory.yaml", OTHER_ACCOUNT, OTHER_ACCOUNT)


def foreign_directory(folder: Path) -> None:
    """Change the owner of the directory to another account, which has copied a file of ours into it."""
    os.chown(folder, OTHER_ACCOUNT, OTHER_ACCOUNT)


def foreign_file_in_tmp(folder: Path) -> None:
    """Put the inventory of another account into a directory like /tmp."""
    folder.chmod(0o1777)
    foreign_file(folder)


def foreign_link_in_tmp(folder: Path) -> None:
    """Place a link of another account to a file of ours, which was meant for something else."""
    folder.chmod(0o1777)
    (folder / "inventory.yaml").rename(folder / "other.yaml")
    (folder / "inventory.yaml").symlink_to("other.yaml")
    os.chown(folder / "inventory.yaml", OTHER_ACCOUNT, OTHER_ACCOUNT, follow_symlinks=False)


def link_to_an_open_directory(folder: Path) -> None:
    """Lead to a file that everybody can replace."""
    (folder / "open").mkdir()
    (folder / "inventory.yaml").rename(folder / "open" / "inventory.yaml")
    (folder / "inventory.yaml").symlink_to("open/inventory.yaml")
    (folder / "open").chmod(0o777)


def writable_config(folder: Path) -> None:
    """Make the SSH configuration that the inventory names writable for all accounts."""
    (folder / "ssh_config").chmod(0o666)


NEEDS_ROOT = (foreign_file, foreign_directory, foreign_file_in_tmp, foreign_link_in_tmp)
ANYBODY = (writable_file, writable_directory, link_to_an_open_directory, writable_config)
PLANTS = [
    *ANYBODY,
    *(
        pytest.param(plant, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"))
        for plant in NEEDS_ROOT
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with an inventory of ours that runs a command."""
    program = tmp_path / "command"
    program.write_text(f"#!{sys.executable}\nopen({str(tmp_path / 'RAN')!r}, 'w')\n")
    program.chmod(0o755)
    (tmp_path / "state").mkdir(mode=0o700)
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    text = INVENTORY.replace("COMMAND", str(program)).replace("CONFIG", "ssh_config")
    (place / "inventory.yaml").write_text(text)
    (place / "ssh_config").write_text("")
    for file in place.iterdir():
        file.chmod(0o644)
    return place


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_another_account_can_have_written_is_not_used(folder: Path, plant: Plant) -> None:
    """It is refused before anything runs, the file and the reason are named; `-i` is the user's word."""
    plant(folder)
    ran = folder.parent / "RAN"
    state = {"XDG_STATE_HOME": str(folder.parent / "state")}
    refused = run(folder, "ps", **state)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "error CC-USE-042: " in refused.stderr
    assert str(folder) in refused.stderr
    assert "-i inventory.yaml" in refused.stderr
    assert not ran.exists()

    run(folder, "-i", "inventory.yaml", "ps", **state)
    assert ran.exists()


def test_an_inventory_of_ours_is_used_without_being_named(folder: Path) -> None:
    """Also in a directory like /tmp, where nobody else can replace it, and over a link of ours."""
    folder.chmod(0o1777)
    (folder / "inventory.yaml").rename(folder / "gpus.yaml")
    (folder / "inventory.yaml").symlink_to("gpus.yaml")
    run(folder, "ps", XDG_STATE_HOME=str(folder.parent / "state"))
    assert (folder.parent / "RAN").exists()
