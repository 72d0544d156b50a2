"""The transport of all connections; one to a bastion carries those of many nodes.

What goes wrong for one channel must not reach the others.
sshd ends the whole connection when a message for a channel arrives after that channel's last one, and paramiko
sends such a message when one thread writes while another closes, or answers a close.
"""

from __future__ import annotations

import logging
import threading

import paramiko
from paramiko.auth_handler import AuthHandler
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_REQUEST, MSG_CHANNEL_WINDOW_ADJUST

from clusterctl.translation import tr

# paramiko prints to the screen what it raises anyway, unless its logger has somewhere to go.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

DISABLED_ALGORITHMS = {
    "keys": ["ssh-rsa"],  # signatures by SHA-1
    "pubkeys": ["ssh-rsa"],
    "macs": ["hmac-md5", "hmac-md5-96", "hmac-sha1-96"],
    "ciphers": ["3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc"],
}


MAX_TEXT = 1000  # characters of a reason that a server gives


def check_count(message: paramiko.Message, item_bytes: int) -> None:
    """Refuse a message that announces more items than it has room for, each of at least `item_bytes`.

    paramiko reads as many items as the server announces, up to four billion, also beyond the end of the message.
    """
    rest = message.get_remainder()
    if int.from_bytes(rest[:4], "big") * item_bytes > len(rest) - 4:
        raise paramiko.SSHException(tr("the server announces more items than its message holds"))


class PipelinedLogin(AuthHandler):
    """A login that does not wait for the server to accept the service before it sends the key: a round trip less."""

    def _request_auth(self):  # type: ignore[no-untyped-def]  # paramiko's own
        super()._request_auth()  # type: ignore[misc]  # the same
        accepted = paramiko.Message()
        accepted.add_string("ssh-userauth")
        accepted.rewind()
        super()._parse_service_accept(accepted)  # type: ignore[misc]  # the same

    def _parse_service_accept(self, m):  # type: ignore[no-untyped-def]  # the same
        """The login is on its way already; a server that does not accept the service disconnects."""


def can_pipeline(key: paramiko.PKey) -> bool:
    """Return whether a signature can be made at once, in any thread, and needs no algorithm of the server's choice."""
    return not isinstance(key, paramiko.AgentKey) and "rsa" not in key.get_name()


CHANNEL_MESSAGES = range(MSG_CHANNEL_WINDOW_ADJUST, MSG_CHANNEL_REQUEST + 1)


class Transport(paramiko.Transport):
    """A transport that keeps the server's disconnect message, and whose channels cannot hurt each other."""

    # Ciphers that authenticate come first: paramiko compares the MACs of the others byte by byte, in Python.
    _preferred_ciphers = tuple(
        sorted(
            paramiko.Transport._preferred_ciphers,  # type: ignore[attr-defined]  # paramiko's own, not in its type information
            key=lambda name: "-gcm@" not in name,
        )
    )
    disconnect_message = ""

    def __init__(self, *arguments, **options):  # type: ignore[no-untyped-def]  # paramiko's
        super().__init__(*arguments, **options)
        self._closed_channels: set[bytes] = set()  # channels, by the server's numbers, that we have ended
        self._deferred_messages: list[paramiko.Message] = []
        self._opening_channel = threading.local()
        self._refusals: dict[int, tuple[int, str]] = {}

    def auth_publickey(
        self, username: str, key: paramiko.PKey, event: threading.Event | None = None
    ) -> list[str]:
        """Log in with a key; one that an agent keeps is asked for as before: the agent may take long."""
        if event is not None or not can_pipeline(key) or not self.is_active() or not self.initial_kex_done:
            return super().auth_publickey(username, key, event)
        done = threading.Event()
        handler = self.auth_handler = PipelinedLogin(self)
        handler.auth_publickey(username, key, done)
        return list(handler.wait_for_response(done))

    def _parse_disconnect(self, m):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        m.get_int()
        self.disconnect_message = m.get_text()[:MAX_TEXT]

    def _parse_ext_info(self, msg):  # type: ignore[no-untyped-def]  # the same
        check_count(msg, 8)
        super()._parse_ext_info(msg)  # type: ignore[misc]  # the same

    def pop_refusal(self) -> tuple[int, str] | None:
        """Return why this thread's last channel was refused; paramiko keeps one reason for all threads."""
        return self._refusals.pop(getattr(self._opening_channel, "number", -1), None)

    def _next_channel(self):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        self._opening_channel.number = super()._next_channel()  # type: ignore[misc]  # the same
        return self._opening_channel.number

    def _parse_channel_open_failure(self, m):  # type: ignore[no-untyped-def]  # paramiko's own
        number, reason, text = m.get_int(), m.get_int(), m.get_text()
        self._refusals[number] = reason, text[:MAX_TEXT]
        m.rewind()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]  # the same

    def _parse_channel_open_success(self, m):  # type: ignore[no-untyped-def]  # paramiko's own
        m.get_int()
        # the server gives a number again once its channel is over
        self._closed_channels.discard(m.get_bytes(4))
        m.rewind()
        super()._parse_channel_open_success(m)  # type: ignore[misc]  # the same

    def _send_user_message(self, data):  # type: ignore[no-untyped-def]  # paramiko's own
        if threading.current_thread() is self and not self.clear_to_send.is_set():
            # Only this thread can end the key exchange that the message has to wait for.
            self._deferred_messages.append(data)
        else:
            super()._send_user_message(data)  # type: ignore[misc]  # the same

    def _parse_newkeys(self, m):  # type: ignore[no-untyped-def]  # paramiko's own
        super()._parse_newkeys(m)  # type: ignore[misc]  # the same
        deferred, self._deferred_messages = self._deferred_messages, []
        for message in deferred:
            self._send_user_message(message)  # type: ignore[no-untyped-call]  # the same

    def _send_message(self, data):  # type: ignore[no-untyped-def]  # paramiko's own
        """Send, unless it is for a channel that we have ended; the caller's lock keeps the order."""
        raw = data.asbytes()
        if raw[0] in CHANNEL_MESSAGES:
            if raw[1:5] in self._closed_channels:
                return
            if raw[0] == MSG_CHANNEL_CLOSE:
                self._closed_channels.add(raw[1:5])
        super()._send_message(data)  # type: ignore[misc]  # the same
