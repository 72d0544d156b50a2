"""A login by password: only for `keys push`, which is there to make it the last one."""

from __future__ import annotations

from typing import Any

import paramiko

from clusterctl.errors import AuthenticationFailed
from clusterctl.runs.hop import Hop
from clusterctl.runs.login import Login

WRONG = "CC-KEYS-001"
UNWANTED = "CC-KEYS-002"


class PasswordLogin(Login):
    """One attempt to get into one node by a password; keyboard-interactive counts where it asks for just that."""

    def __init__(self, hop: Hop, *, password: str, **rest: Any) -> None:
        super().__init__(hop, **rest)
        self._password = password

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Show the password once."""
        self._begin("login", self.timeouts.login)
        try:
            further = transport.auth_password(self.hop.user, self._password, fallback=True)
        except paramiko.BadAuthenticationType as error:
            raise self._no_passwords(", ".join(error.allowed_types)) from error
        except paramiko.AuthenticationException as error:
            if self.alarm.expired or not transport.is_active():
                raise
            raise self._wrong() from error
        if further:
            raise self._refuse("it wants more than a password", f"it also wants: {', '.join(further)}")

    def _wrong(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self.hop.called} does not take this password for {self.hop.user}",
            code=WRONG,
            node=self.hop.name,
            fix="mind that `user` under `ssh:` in the inventory says whose password it is; some servers take none "
            "for root (PermitRootLogin)",
        )

    def _no_passwords(self, wanted: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self.hop.called} takes no passwords",
            code=UNWANTED,
            node=self.hop.name,
            evidence=f"it wants: {wanted}",
            fix="give the public key to whoever keeps the node: it belongs into ~/.ssh/authorized_keys there",
        )
