"""`inventory import` as a user types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from clusterctl.cli import main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run the command line; gives exit code, standard output and standard error."""
    code = main.run(["inventory", "import", *args])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a hostfile."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostfile").write_text("gpu01 slots=8\ngpu02 slots=8\n")
    return tmp_path


def test_the_inventory_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """And what was understood to standard error."""
    code, out, err = run(capsys, "hostfile")

    assert (code, err) == (0, "read as a DeepSpeed hostfile: 2 nodes\n")
    assert out.endswith("\ncluster: hostfile\ngpus: 8\nnodes:\n  - {host: gpu01}\n  - {host: gpu02}\n")


def test_a_written_inventory_can_be_used_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """By the other verbs, as the next step reports."""
    code, out, err = run(capsys, "hostfile", "-o", "lab.yaml")

    assert (code, out) == (0, "")
    assert "next: clusterctl -i lab.yaml check" in err
    assert main.run(["-i", "lab.yaml", "inventory", "show"]) == 0


def test_no_file_is_lost(in_a_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is there stays, a link too, until --force; that replaces it as a whole."""
    (in_a_folder / "mine.yaml").write_text("mine")
    (in_a_folder / "link.yaml").symlink_to("nowhere.yaml")

    for name in ("mine.yaml", "link.yaml"):
        code, _, err = run(capsys, "hostfile", "-o", name)
        assert (code, "CC-USE-040" in err) == (2, True)
    assert (in_a_folder / "mine.yaml").read_text() == "mine"
    assert not (in_a_folder / "nowhere.yaml").exists()
    assert run(capsys, "hostfile", "-o", "mine.yaml", "--force")[0] == 0
    assert "gpu01" in (in_a_folder / "mine.yaml").read_text()
    assert sorted(path.name for path in in_a_folder.iterdir()) == ["hostfile", "link.yaml", "mine.yaml"]


def test_a_wrong_file_names_the_place(in_a_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File, line, column and code; nothing is written, nothing is a traceback."""
    (in_a_folder / "hostfile").write_text("gpu01 slots=8\ngpu02 slots=x\n")

    code, out, err = run(capsys, "hostfile", "-o", "lab.yaml")

    assert (code, out) == (2, "")
    assert "hostfile:2:7: CC-SPEC-012 expected a whole number, got 'x'" in err
    assert not (in_a_folder / "lab.yaml").exists()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\xff\xfe", "CC-SPEC-002"),
        (b"a\0b", "CC-SPEC-002"),
        (b"#" * 1_100_000, "CC-SPEC-003"),
        (b"", "CC-SPEC-022"),
    ],
)
def test_a_hostile_file_is_refused(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str], content: bytes, code: str
) -> None:
    """Bytes that are no text, far too many of them, none at all."""
    (in_a_folder / "hostfile").write_bytes(content)

    exit_code, out, err = run(capsys, "hostfile")

    assert (exit_code, out, code in err) == (2, "", True)


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_directory_is_not_written_to(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str], force: tuple[str, ...]
) -> None:
    """Whatever its name: it is an error of the user's, not of ours."""
    (in_a_folder / "hostfile").write_text("gpu01 slots=8\n")
    for name in (".", "/", str(in_a_folder)):
        code, _, err = run(capsys, "hostfile", "-o", name, *force)
        assert (code, "CC-USE-040" in err) == (2, True)
    assert [path.name for path in in_a_folder.iterdir()] == ["hostfile"]


def test_a_full_disk_leaves_no_empty_inventory(in_a_folder: Path) -> None:
    """It would else be there already when there is room again."""
    (in_a_folder / "hostfile").write_text("gpu01 slots=8\n")
    full = "import resource as r, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    full += "r.setrlimit(r.RLIMIT_FSIZE, (0, 0))\nfrom clusterctl.cli.main import main\n"
    full += "main(['inventory', 'import', 'hostfile', '-o', 'lab.yaml'])"
    done = subprocess.run([sys.executable, "-c", full], capture_output=True, text=True, check=False)
    assert (done.returncode, "CC-USE-008" in done.stderr) == (1, True)
    assert not (in_a_folder / "lab.yaml").exists()


def test_standard_input() -> None:
    """`-` reads what another command writes."""
    done = CliRunner().invoke(main.root, ["inventory", "import", "-", "--format", "mpi"], input="a:4\n")

    assert done.exit_code == 0
    assert "- {host: a}\n" in done.stdout


def test_variables_beside_an_ansible_inventory_are_not_forgotten(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """group_vars is not read; the note reports what reads it."""
    (in_a_folder / "group_vars").mkdir()
    (in_a_folder / "hosts.ini").write_text("[gpu]\ngpu01\n[cpu]\ncpu01\n")

    code, out, err = run(capsys, "hosts.ini", "--group", "gpu")

    assert (code, "gpu01" in out, "cpu01" in out) == (0, True, False)
    assert "group_vars/ was not read" in err
    assert run(capsys, "hosts.ini", "--group", "gpus")[0] == 2


def test_an_ssh_configuration_stays_the_way_in(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes name the file that was imported, but not ssh's own, which is read anyway."""
    monkeypatch.setenv("HOME", str(in_a_folder))
    (in_a_folder / ".ssh").mkdir()
    text = "Host gpu01\n  HostName 10.0.0.1\nHost gpu02\n  HostName 10.0.0.2\n"
    for place in (".ssh/config", "mine"):
        (in_a_folder / place).write_text(text)
    usual = run(capsys, "~/.ssh/config")
    other = run(capsys, "mine")

    assert usual[::2] == other[::2] == (0, "read as an SSH configuration: 2 nodes\n")
    assert "config:" not in usual[1].replace("cluster: config", "")
    assert f"ssh: {{config: {in_a_folder}/mine}}" in other[1]
    assert "- {host: gpu01}" in usual[1]


def test_the_groups_are_shown(in_a_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that a login node is not trained on by accident."""
    (in_a_folder / "hosts.ini").write_text("[login]\nl1\n[gpu]\na\nb\n")
    code, _, err = run(capsys, "hosts.ini")

    assert code == 0
    assert "note: All 3 hosts were imported." in err
    assert "--group: login (1), gpu (2)." in err
    assert "--group" not in run(capsys, "hosts.ini", "--group", "gpu")[2]
