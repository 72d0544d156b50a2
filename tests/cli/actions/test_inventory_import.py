"""`inventory import` as a user types it."""

from __future__ import annotations

import json
import os
import shutil
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


@pytest.fixture
def ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible of this virtual environment, which need not be active."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if shutil.which("ansible-inventory") is None:
        pytest.skip("no ansible-inventory: pip install ansible-core")


CASES = Path(__file__).parents[2] / "specs" / "importers" / "cases"


@pytest.mark.process
@pytest.mark.usefixtures("ansible")
@pytest.mark.parametrize("name", ["hosts.ini", "hosts.yml"])
def test_ansible_reads_its_own_files(
    name: str, in_a_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranges, groups and vaults give what was recorded of Ansible; so does a file on standard input."""
    shutil.copyfile(CASES / name, in_a_folder / name)
    shutil.copyfile(CASES / f"{name}.json", in_a_folder / "recorded.json")
    given = CliRunner().invoke(main.root, ["inventory", "import", "-"], input=(CASES / name).read_text())
    nodes = [text.partition("nodes:")[2] for text in (run(capsys, name)[1], given.stdout)]

    assert [run(capsys, "recorded.json")[1].partition("nodes:")[2]] * 2 == nodes


@pytest.mark.process
@pytest.mark.usefixtures("ansible")
def test_variables_beside_an_ansible_inventory_count(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """group_vars and the plug-in that a file names are Ansible's, and so is what it reports of a wrong file."""
    (in_a_folder / "group_vars").mkdir()
    (in_a_folder / "group_vars" / "gpu.yml").write_text("ansible_port: 2222\n")
    (in_a_folder / "hosts.ini").write_text("[gpu]\ngpu01\n[cpu]\ncpu01\n")
    (in_a_folder / "plugin.yml").write_text("plugin: generator\nhosts: {name: gpu-a}\nlayers: {}\n")
    (in_a_folder / "wrong.ini").write_text("[gpu:children]\nnowhere\n")

    code, out, err = run(capsys, "hosts.ini", "--group", "gpu")
    assert (code, "{host: gpu01}" in out, "port: 2222" in out, "cpu01" in out) == (0, True, True, False), err
    assert run(capsys, "hosts.ini", "--group", "gpus")[0] == 2
    assert "{host: gpu-a}" in run(capsys, "plugin.yml")[1]
    code, out, err = run(capsys, "wrong.ini")
    assert (code, out, "includes undefined group" in err) == (2, "", True)
    assert "CC-SPEC-053: wrong.ini: Ansible cannot list the hosts" in err


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put another program in place of Ansible's."""
    (folder / "bin").mkdir()
    (folder / "bin" / "ansible-inventory").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "ansible-inventory").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


def test_what_another_account_may_have_written_is_not_given_to_ansible(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a script, an inventory of ours, nor what has another form; the user can run Ansible on them."""
    program(in_a_folder, monkeypatch, "touch started; exit 1")
    hosts, settings = in_a_folder / "hosts.ini", in_a_folder / "ansible.cfg"
    hosts.write_text("[gpu]\na\n")
    (in_a_folder / "own.yaml").write_text("cluster: a\nnodes: [{host: b}]\n")

    for file, mode in ((hosts, 0o602), (hosts, 0o700), (settings, 0o606)):
        file.touch()
        file.chmod(mode)
        code, _, err = run(capsys, "hosts.ini")
        assert (code, "CC-SPEC-053" in err) == (2, True), file
        assert "ansible-inventory -i hosts.ini --list | clusterctl init --from -" in err
        file.chmod(0o600)
    assert "own.yaml:2:1: CC-SPEC-051" in run(capsys, "own.yaml")[2]
    assert run(capsys, "hostfile")[0] == 0
    assert not (in_a_folder / "started").exists()
    assert run(capsys, "hosts.ini")[0] == 2
    assert (in_a_folder / "started").exists()


def test_without_ansible_its_files_are_not_read(
    in_a_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names both ways out: install it, or have another machine list the hosts."""
    (in_a_folder / "hosts.ini").write_text("[gpu]\na\n")
    monkeypatch.setenv("PATH", str(in_a_folder))
    code, _, err = run(capsys, "hosts.ini")

    assert (code, "CC-SPEC-053: hosts.ini" in err) == (2, True)
    assert "pip install ansible-core" in err and "ansible-inventory -i FILE --list > hosts.json" in err


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "reason"),
    [("sleep 600", "timed out"), ("yes", "it wrote more than 1 MiB"), ("echo '{'", "is not")],
)
def test_ansible_has_limits(
    script: str,
    reason: str,
    in_a_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plug-in that hangs, one that writes without end, and an answer that is none."""
    program(in_a_folder, monkeypatch, script)
    monkeypatch.setattr("clusterctl.client.local.programs.LISTING_LIMIT", 0.5 if "sleep" in script else 60.0)
    monkeypatch.setattr("clusterctl.specs.importers.ansible.MAX_LISTING", 1 << 20)
    (in_a_folder / "hosts.ini").write_text("[gpu]\na\n")
    code, _, err = run(capsys, "hosts.ini")

    assert (code, "CC-SPEC-053" in err, reason in err) == (2, True, True), err


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
    groups = {"all": {"children": ["login", "gpu"]}, "login": {"hosts": ["l1"]}, "gpu": {"hosts": ["a", "b"]}}
    (in_a_folder / "hosts.json").write_text(json.dumps({"_meta": {"hostvars": {}}, **groups}))
    code, _, err = run(capsys, "hosts.json")

    assert code == 0
    assert "note: All 3 hosts were imported." in err
    assert "--group: login (1), gpu (2)." in err
    assert "--group" not in run(capsys, "hosts.json", "--group", "gpu")[2]
