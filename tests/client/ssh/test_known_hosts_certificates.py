"""Host certificates: `@cert-authority` lines of known_hosts, believed as far as a certificate holds."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Client, Server, make_key, run_keygen

from clusterctl.client.ssh.known_hosts import parse_certificate
from clusterctl.errors import ConnectError, HostKeyError

Serve = Callable[..., Server]


def certified(
    serve: Serve, folder: Path, kind: str, *words: str, authority: str = "ed25519"
) -> tuple[Server, str]:
    """Start a server whose host key is certified; returns it and the authority's public key."""
    signer, key = make_key(folder / "authority", authority), make_key(folder / "host", kind)
    run_keygen("-q", "-s", str(signer), "-I", "a host", *(words or ("-h", "-n", "127.0.0.1")), f"{key}.pub")
    server = serve(f"HostKey {key}", f"HostCertificate {key}-cert.pub")
    return server, " ".join((folder / "authority.pub").read_text().split()[:2])


def trust(folder: Path, *lines: str) -> str:
    """Write a known_hosts file."""
    (folder / "known").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / "known")


@pytest.mark.parametrize(("kind", "authority"), [("ed25519", "rsa"), ("rsa", "ecdsa"), ("ecdsa", "ed25519")])
def test_an_authority_vouches_for_a_host(
    serve: Serve, client: Client, tmp_path: Path, kind: str, authority: str
) -> None:
    """With and without the port in the line; nothing is recorded."""
    server, key = certified(serve, tmp_path, kind, authority=authority)
    for name in ("127.0.0.*", f"[127.0.0.1]:{server.port}"):
        known = trust(tmp_path, f"@cert-authority {name} {key}")
        assert client.connect(server.node(known_hosts=known)).is_connected
        client.hostkeys._files.clear()
    assert client.recorded == []


@pytest.mark.parametrize(
    ("words", "flaw"),
    [
        (("-h", "-n", "gpu01,gpu02"), "it is for gpu01, gpu02, not for 127.0.0.1"),
        (("-h", "-n", "127.0.0.1", "-V", "20200101:20200201"), "it has expired"),
        (("-h", "-n", "127.0.0.1", "-V", "20900101:20900201"), "it is not valid yet"),
    ],
)
def test_a_certificate_that_does_not_hold(
    serve: Serve, client: Client, tmp_path: Path, words: tuple[str, ...], flaw: str
) -> None:
    """It is named, with what is wrong with it."""
    server, key = certified(serve, tmp_path, "ed25519", *words)
    known = trust(tmp_path, f"@cert-authority * {key}")
    with pytest.raises(HostKeyError) as caught:
        client.connect(server.node(known_hosts=known, host_keys="accept-new"))
    assert caught.value.code == "CC-SSH-021"
    assert caught.value.evidence == f"certificate 'a host': {flaw}"


def _sign(folder: Path, *words: str) -> bytes:
    signer, key = make_key(folder / "ca"), make_key(folder / "key")
    run_keygen("-q", "-s", str(signer), "-I", "me", *words, f"{key}.pub")
    return base64.b64decode((folder / "key-cert.pub").read_text().split()[1])


def test_a_tampered_certificate(tmp_path: Path) -> None:
    """Any changed byte is noticed, and what is cut off is none."""
    blob = _sign(tmp_path, "-h", "-n", "a")
    whole = parse_certificate(blob)
    assert whole is not None
    assert whole.find_flaw("A") == ""
    assert whole.find_flaw("A", now=time.time() - 1e9) == ""  # valid for ever
    for place in range(40, len(blob), 7):
        changed = parse_certificate(blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :])
        assert changed is None or changed.find_flaw("a") or changed.ca_key != whole.ca_key
    assert all(parse_certificate(blob[:size]) is None for size in range(len(blob)))


def test_a_users_certificate_is_none_for_hosts(tmp_path: Path) -> None:
    """One authority may sign both."""
    certificate = parse_certificate(_sign(tmp_path, "-n", "a"))
    assert certificate is not None
    assert certificate.find_flaw("a") == "it is a user certificate"


def test_an_unknown_or_revoked_authority(serve: Serve, client: Client, tmp_path: Path) -> None:
    """Another's signature counts for nothing, a revoked one's is refused by name; the key itself may be known."""
    server, key = certified(serve, tmp_path, "ed25519")
    other = " ".join(make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])
    host = " ".join((tmp_path / "host.pub").read_text().split()[:2])
    for lines, code in (
        ((f"@cert-authority * {other}",), "CC-SSH-009"),
        ((f"@cert-authority * {key}", f"@revoked * {key}"), "CC-SSH-011"),
        ((f"@cert-authority * {key}", f"@revoked * {host}"), "CC-SSH-011"),
    ):
        known = trust(tmp_path, *lines)
        client.hostkeys._files.clear()
        with pytest.raises(ConnectError) as caught:
            client.connect(server.node(known_hosts=known))
        assert caught.value.code == code
    client.hostkeys._files.clear()
    known = trust(tmp_path, f"@cert-authority * {other}", f"[127.0.0.1]:{server.port} {host}")
    assert client.connect(server.node(known_hosts=known)).is_connected
