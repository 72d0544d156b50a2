"""RevokedHostKeys of the SSH configuration, as text and as a revocation list, over a real sshd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from servers import Server, make_key, run_keygen
from test_bastion import configure, failure, opened, probe

from clusterctl.client.ssh.known_hosts import find_revocation
from clusterctl.specs.inventory.model import Node

Serve = Callable[..., Server]


def read_public(path: Path) -> bytes:
    """Read the public half of a key with other means than the code under test."""
    from paramiko.pkey import PublicBlob

    return PublicBlob.from_file(path).key_blob


@pytest.mark.parametrize("form", ["text", "krl", "missing", "krl cut off"])
def test_what_the_configuration_revokes_is_refused(serve: Serve, tmp_path: Path, form: str) -> None:
    """As ssh does, though known_hosts knows the key; a file that is not there allows nothing."""
    server, file = serve(), tmp_path / "revoked"
    public = server.folder / "host_ed25519.pub"
    if form == "text":
        file.write_text(f"# keys that were stolen\n\n{public.read_text()}")
    elif form != "missing":
        run_keygen("-q", "-k", "-f", str(file), str(public))
    if form == "krl cut off":
        file.write_bytes(file.read_bytes()[:-8])
    with opened() as cluster:
        error = failure(cluster, configured(server, tmp_path, file))
    assert (error.code, str(file) in error.message) == ("CC-SSH-011", True)


@pytest.mark.parametrize("form", ["text", "krl", "none"])
def test_what_is_not_revoked_is_let_in(serve: Serve, tmp_path: Path, form: str) -> None:
    """Another's key stands there."""
    server, file = serve(), tmp_path / "revoked"
    other = make_key(tmp_path / "other").with_suffix(".pub")
    if form == "text":
        file.write_text(other.read_text())
    else:
        run_keygen("-q", "-k", "-f", str(file), str(other))
    with opened() as cluster:
        (outcome,) = cluster.each([configured(server, tmp_path, "none" if form == "none" else file)], probe)
    assert outcome.error is None


def test_a_certificate_is_revoked_with_its_authority_or_by_number(tmp_path: Path) -> None:
    """The key itself stands nowhere."""
    authority, host = make_key(tmp_path / "ca"), make_key(tmp_path / "host")
    run_keygen("-q", "-s", str(authority), "-h", "-I", "n1", "-n", "n1", "-z", "7", f"{host}.pub")
    (tmp_path / "text").write_text((tmp_path / "ca.pub").read_text())
    (tmp_path / "numbers").write_text("serial: 7\n")
    run_keygen("-q", "-k", "-s", f"{authority}.pub", "-f", str(tmp_path / "krl"), str(tmp_path / "numbers"))
    key, certificate = read_public(tmp_path / "host.pub"), read_public(tmp_path / "host-cert.pub")
    for name in ("text", "krl"):
        assert find_revocation(tmp_path / name, key, certificate) != ""
        assert find_revocation(tmp_path / name, key) == ""


def configured(server: Server, tmp_path: Path, file: Path | str) -> Node:
    """Describe a node of which the SSH configuration reports all."""
    path = configure(tmp_path / "config", there=server)
    with Path(path).open("a") as config:
        config.write(f"  RevokedHostKeys {file}\n")
    node = server.node("n1", config=path)
    ssh = replace(node.ssh, port=None, user=None, key=None, known_hosts=None)
    return replace(node, host="there", ssh=ssh)
