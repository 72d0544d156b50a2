"""A login by password meets servers that ask questions: only one for the password is answered with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery
from servers import PATIENT, make_client, node_named, plain_hop

from clusterctl.client.ssh.connect import connect
from clusterctl.client.ssh.key_install import PasswordHandshake
from clusterctl.errors import AuthenticationFailed

PASSWORD = "correct horse"
Ask = Callable[..., "Asking"]


class Asking(paramiko.ServerInterface):
    """A server that takes keyboard-interactive alone, asks its questions, and keeps what it was sent."""

    def __init__(self, questions: list[tuple[str, bool]]) -> None:
        self.questions = questions
        self.told: list[str] = []
        self.port = 0

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's signature
        """Offer one method."""
        return "keyboard-interactive"

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery:  # noqa: ARG002 - paramiko's signature
        """Ask."""
        return InteractiveQuery("", "", *self.questions)

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        """Let in who knows the password."""
        self.told += responses
        return AUTH_SUCCESSFUL if responses == [PASSWORD] else AUTH_FAILED


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Start a server that asks these questions; their second part is whether the answer would be echoed."""
    doors: list[socket.socket] = []
    key = paramiko.ECDSAKey.generate()

    def start(*questions: tuple[str, bool]) -> Asking:
        asking, door = Asking(list(questions)), socket.create_server(("127.0.0.1", 0))
        doors.append(door)
        asking.port = door.getsockname()[1]

        def serve() -> None:
            transport = paramiko.Transport(door.accept()[0])
            transport.add_server_key(key)
            transport.start_server(threading.Event(), asking)

        threading.Thread(target=serve, daemon=True).start()
        return asking

    yield start
    for door in doors:
        door.close()


def enter(server: Asking, home: Path) -> None:
    """Log in by the password, and out again."""
    client = make_client(home)
    hop = plain_hop(
        node_named("gpu01", port=server.port, host_keys="accept-new", known_hosts=str(home / "kh"))
    )
    login = partial(PasswordHandshake, password=PASSWORD)
    connect(replace(hop), client.hostkeys, client.keyring, PATIENT, handshake_type=login).close()


@pytest.mark.parametrize("question", ["Password: ", "(ann@token-ring) password:", "ann 的密码: "])
def test_a_question_for_the_password_is_answered(ask: Ask, tmp_path: Path, question: str) -> None:
    """PAM asks for it in the language of the node."""
    server = ask((question, False))
    enter(server, tmp_path)

    assert server.told == [PASSWORD]


@pytest.mark.parametrize(
    "question",
    [
        ("Verification code: ", False),
        ("One-time password: ", False),
        ("Your name: ", True),
        ("Password: ", True),
    ],
)
def test_another_question_is_reported_and_not_answered(
    ask: Ask, tmp_path: Path, question: tuple[str, bool]
) -> None:
    """A code of a token is not the password, and what is shown on a screen gets no secret."""
    server = ask(question)
    with pytest.raises(AuthenticationFailed) as caught:
        enter(server, tmp_path)

    assert server.told == []
    assert question[0].strip() in str(caught.value.evidence)
