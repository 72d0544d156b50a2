"""What the pages show of commands that ask no node is what these commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import ROOT, blocks

from clusterctl.cli.main import run

MACHINES, JOB = (ROOT / "docs" / "en" / name for name in ("machines.md", "job.md"))
WRONG_INVENTORY = """\
cluster: lab-a
ssh: {user: root, prot: 2222}
nodes:
  - name: gpu01
    host: root@192.168.10.235
    nic: meth917,meth918
"""
WRONG_JOB = """\
name: digits
scirpt: train.py
args: [--epochs, 3]
nproc_per_node: 1
backend: gloo
grace: 30s
sync: {source: .}
env: {RANK: 0, RANKED: "${node_rnk}"}
"""


def texts(page: Path) -> list[str]:
    """Give the blocks of a page."""
    return [block.text for block in blocks() if block.page == page]


def holding(page: Path, words: str) -> str:
    """Give the block of a page that holds some words."""
    return next(text for text in texts(page) if words in text)


def bare(text: str) -> list[str]:
    """Give the lines without the spaces at their ends."""
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The inventory and the job of the pages, in a folder of their own."""
    (tmp_path / "inventory.yaml").write_text(holding(MACHINES, "\nnodes:"), encoding="utf-8")
    project = tmp_path / "digits"
    project.mkdir()
    (project / "job.yaml").write_text(holding(JOB, "name: digits"), encoding="utf-8")
    (project / "train.py").write_text("print('a script')\n", encoding="utf-8")
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_inventory_show(capsys: pytest.CaptureFixture[str]) -> None:
    """The page of machines shows the whole table of `inventory show`."""
    shown = holding(MACHINES, "$ clusterctl inventory show").partition("\n")[2]

    assert run(["inventory", "show"]) == 0
    assert bare(capsys.readouterr().out) == bare(shown)


@pytest.mark.usefixtures("folder")
def test_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The page of the job shows the first node's part; size and place of the code may be otherwise."""
    shown = [line.replace("...", "") for line in bare(holding(JOB, "cd <run_dir>/code"))]

    assert run(["launch", "digits/job.yaml", "--dry-run"]) == 0
    printed = bare(capsys.readouterr().out)
    assert re.fullmatch(r"# code: 2 files, [0-9.]+ kB, from .*/digits", shown[0])
    assert re.fullmatch(r"# code: 2 files, [0-9]+ bytes, from .*/digits", printed[0])
    assert printed[1 : len(shown) - 1] == shown[1:-1]
    assert printed[len(shown) - 1].startswith(shown[-1])


@pytest.mark.parametrize(
    ("page", "words", "wrong"),
    [
        (MACHINES, ["-i", "inventory.yaml", "check"], WRONG_INVENTORY),
        (JOB, ["launch", "job.yaml"], WRONG_JOB),
    ],
)
def test_what_is_wrong_in_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str], page: Path, words: list[str], wrong: str
) -> None:
    """The pages show every mistake with its place and its fix; a list of all keys may be cut short."""
    (folder / next(word for word in words if word.endswith(".yaml"))).write_text(wrong, encoding="utf-8")
    shown = holding(page, f"$ clusterctl {' '.join(words)}\nerror").partition("\n")[2]

    assert run(words) == 2
    printed = [line for line in bare(capsys.readouterr().err) if not line.startswith("inventory: ")]
    assert len(printed) == len(bare(shown))
    for line, pattern in zip(printed, map(as_pattern, bare(shown)), strict=True):
        assert re.fullmatch(pattern, line)


def as_pattern(line: str) -> str:
    """Let three dots at a line's end stand for the rest."""
    return re.escape(line.removesuffix("...")) + (".*" if line.endswith("...") else "")
