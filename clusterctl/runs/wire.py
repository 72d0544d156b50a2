"""paramiko's transport, as we want it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import paramiko

# paramiko prints to the screen what it raises anyway, unless its logger has somewhere to go.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

REFUSED = {
    "keys": ["ssh-rsa"],  # signatures by SHA-1
    "pubkeys": ["ssh-rsa"],
    "macs": ["hmac-md5", "hmac-md5-96", "hmac-sha1-96"],
    "ciphers": ["3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc"],
}


class Wire(paramiko.Transport):
    """A transport that remembers why the server hung up, and may ask for the host's certificate first."""

    # Ciphers that authenticate come first: paramiko compares the MACs of the others byte by byte, in Python.
    _preferred_ciphers = tuple(
        sorted(
            paramiko.Transport._preferred_ciphers,  # type: ignore[attr-defined]  # paramiko's own, not in its type information
            key=lambda name: "-gcm@" not in name,
        )
    )
    parting = ""
    wants_certificate = False

    def _parse_disconnect(self, m):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        m.get_int()
        self.parting = m.get_text()

    @property
    def preferred_keys(self) -> Sequence[str]:
        """Order the host keys to ask for; paramiko asks for certificates last."""
        names = super().preferred_keys
        if not self.wants_certificate:
            return names
        return tuple(sorted(names, key=lambda name: not name.endswith("-cert-v01@openssh.com")))
