"""RevokedHostKeys of an SSH configuration: a file of public keys, or a revocation list (KRL) of ssh-keygen's."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from pathlib import Path

import paramiko

from clusterctl.runs.hostcerts import parse_certificate
from clusterctl.runs.knownhosts import decode_key

KRL = b"SSHKRL\n\0"
LIMIT = 10.0  # seconds for ssh-keygen


def find_revocation(file: Path, key: bytes, certificate: bytes = b"") -> str:
    """Say why a host key, or the certificate for it, is not to be believed; empty if it may be.

    A file that cannot be read allows nothing, as ssh has it.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    if content.startswith(KRL):
        return _ask_keygen(file, certificate or key)
    signed = parse_certificate(certificate) if certificate else None
    shown = {key, signed.authority} if signed is not None else {key}
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split()
        if len(words) > 1 and decode_key(words[0], words[1]) in shown:
            return f"it stands in {file}"
    return ""


def _ask_keygen(file: Path, blob: bytes) -> str:
    """Ask ssh-keygen, which alone knows what a revocation list says of serial numbers and names."""
    with tempfile.NamedTemporaryFile(prefix="clusterctl-") as asked:
        asked.write(paramiko.Message(blob).get_string() + b" " + base64.b64encode(blob) + b"\n")
        asked.flush()
        try:
            done = subprocess.run(
                ["ssh-keygen", "-Q", "-f", str(file), asked.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"ssh-keygen cannot say what {file} revokes: {error}"
    return "" if done.returncode == 0 else f"{file} revokes it"
