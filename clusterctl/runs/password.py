"""A login by password: only for `keys push`, which is there to make it the last one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import paramiko

from clusterctl.errors import AuthenticationFailed
from clusterctl.runs.hop import Hop
from clusterctl.runs.login import Login

WRONG = "CC-KEYS-001"
UNWANTED = "CC-KEYS-002"
ASKS_FOR_PASSWORD = re.compile(r"password|密码|密碼|口令", re.IGNORECASE)
WHOSE = re.compile(r"^\([^)]*\)|\S+@\S+")  # what PAM writes around a question: a host may be called token
ASKS_FOR_MORE = re.compile(
    r"one[- ]?time|\botp\b|\btoken\b|\bcode\b|passcode|验证码|驗證碼|动态", re.IGNORECASE
)


class _OtherQuestionError(Exception):
    """The server asks for what is not the password; the text is its question."""


class PasswordLogin(Login):
    """One attempt to get into one node by a password; keyboard-interactive counts where it asks for just that."""

    def __init__(self, hop: Hop, *, password: str, **rest: Any) -> None:
        super().__init__(hop, **rest)
        self._password = password

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Show the password once."""
        self._begin("login", self.timeouts.login)
        try:
            further = self._show(transport)
        except paramiko.BadAuthenticationType as error:
            raise self._no_passwords(", ".join(error.allowed_types)) from error
        except _OtherQuestionError as error:
            raise self._refuse("it asks for something else than a password", f"it asked: {error}") from error
        except paramiko.AuthenticationException as error:
            if self.alarm.expired or not transport.is_active():
                raise
            raise self._wrong() from error
        if further:
            raise self._refuse("it wants more than a password", f"it also wants: {', '.join(further)}")

    def _show(self, transport: paramiko.Transport) -> list[str]:
        """Give the password, or answer the one question for it; gives what the server wants besides."""
        try:
            return transport.auth_password(self.hop.user, self._password, fallback=False)
        except paramiko.BadAuthenticationType as error:
            if "keyboard-interactive" not in error.allowed_types:
                raise
        return transport.auth_interactive(self.hop.user, self._answer)

    def _answer(self, _title: str, _instructions: str, questions: Sequence[tuple[str, bool]]) -> list[str]:
        """Answer a question that asks for just the password; no code of a token's is it, and nothing that is echoed."""
        for asked, echoed in questions:
            question = WHOSE.sub("", asked)
            if echoed or not ASKS_FOR_PASSWORD.search(question) or ASKS_FOR_MORE.search(question):
                raise _OtherQuestionError(asked.strip())
        return [self._password] * len(questions)

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
