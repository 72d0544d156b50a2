"""`check` as a user types it, against a real sshd at loopback."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, start_server

from clusterctl.cli import main


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests here."""
    started = start_server(tmp_path_factory.mktemp("sshd"))
    yield started
    started.stop()


@pytest.fixture
def inventory(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One node that is promised more GPUs than it has, which is an error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node = server.node()
    ssh = f"{{user: {node.ssh.user}, port: {node.ssh.port}, key: {node.ssh.key}, "
    ssh += f"known_hosts: {node.ssh.known_hosts}, config: none}}"
    path = tmp_path / "lab.yaml"
    head = f"cluster: lab\nssh: {ssh}\npython: {sys.executable}\nworkdir: {tmp_path}/work\ngpus: 99\n"
    path.write_text(f"{head}nodes: [{{host: 127.0.0.1, name: gpu01}}]\n")
    return path


def check(capsys: pytest.CaptureFixture[str], inventory: Path, *words: str) -> tuple[int, str, str]:
    """Run `check`; gives exit code, standard output and standard error."""
    code = main.run(["-i", str(inventory), "check", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def codes(out: str) -> dict[str, str]:
    """Give the codes of what `--json` shows, each with its waiver."""
    return {one["code"]: one["waived"] for one in json.loads(out)["findings"]}


def test_checks_are_chosen(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By families, codes and globs; a word that means nothing names the nearest."""
    code, out, _ = check(capsys, inventory, "--only", "gpu", "--json")
    assert code == 3 and {name[:6] for name in codes(out)} == {"CC-GPU"}
    code, _, err = check(capsys, inventory, "--only", "GPU", "--skip", "gpu-00*")
    assert code == 0 and f"next: clusterctl -i {inventory} launch JOB.yaml\n" in err
    assert "next: " not in check(capsys, inventory, "--only", "GPU", "--skip", "gpu-00*", "-q")[2]
    assert "next: " not in check(capsys, inventory, "--only", "GPU", "--skip", "gpu-00*", "--json")[2]
    code, _, err = check(capsys, inventory, "--skip", "NTE")
    assert code == 2 and "CC-USE-050" in err and "did you mean CC-NET?" in err


def test_a_waived_error_is_shown_and_stops_nothing(
    inventory: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Waived in the inventory or in the job; the reason stands on the screen and in the JSON."""
    bare = inventory.read_text()
    job = tmp_path / "job.yaml"
    (tmp_path / "t.py").write_text("")
    job.write_text("name: j\nscript: t.py\nbackend: gloo\nnproc_per_node: 1\n")
    waiver = "waive: [{code: CC-GPU-003, nodes: gpu01, reason: cards are in repair}]\n"
    assert check(capsys, inventory, str(job), "--only", "GPU")[0] == 3

    inventory.write_text(bare.replace("nodes:", f"{waiver}nodes:"))
    code, out, _ = check(capsys, inventory, str(job), "--only", "GPU")
    assert code == 0, out
    assert "waived CC-GPU-003" in out
    assert f"cardsareinrepair({inventory})" in "".join(out.split())  # a long path may be broken anywhere
    assert "1 node is ready (1 waived)" in out

    inventory.write_text(bare)
    job.write_text(job.read_text() + waiver)
    code, out, _ = check(capsys, inventory, str(job), "--only", "GPU", "--json")
    assert (code, codes(out)) == (0, {"CC-GPU-003": f"cards are in repair ({job})"})


def test_what_no_launch_survives_cannot_be_waived(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused with the place of the waiver."""
    inventory.write_text(inventory.read_text() + "waive: [{code: CC-SSH-002, reason: it is off}]\n")
    code, _, err = check(capsys, inventory)
    assert code == 2 and "CC-USE-051" in err and str(inventory) in err


def test_what_this_machine_adds(
    inventory: Path, server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A key that others may read, and files beside the script that hide modules; neither stops a launch."""
    job = tmp_path / "job.yaml"
    (tmp_path / "torch").mkdir()
    for name in ("t.py", "random.py", "model.py", "torch/__init__.py"):
        (tmp_path / name).write_text("")
    job.write_text("name: j\nscript: t.py\nbackend: gloo\nnproc_per_node: 1\n")
    server.client_key.chmod(0o644)
    try:
        code, out, _ = check(capsys, inventory, str(job), "--only", "SSH,PY-020", "--json")
    finally:
        server.client_key.chmod(0o600)

    seen = {one["code"]: one for one in json.loads(out)["findings"]}
    assert (code, sorted(seen)) == (0, ["CC-PY-020", "CC-SSH-022"])
    assert seen["CC-SSH-022"]["fix"] == f"chmod 600 {server.client_key}"
    assert sorted(seen["CC-PY-020"]["fix"].split()[-2:]) == ["random.py", "torch/"]
