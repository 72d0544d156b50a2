"""Post a message to a URL that is a secret: bounded time, one more try, no redirect, nothing of it in what is said.

| CC-END-001 | the command of `on_end` failed or took too long | (told; the run's verdict stays)   |
| CC-END-002 | a notification could not be sent                | (told; the run's verdict stays)   |
| CC-END-003 | a URL or secret is not set, or no URL of the web | UsageError before a launch, told after |
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from clusterctl.plans.notices import Post, read_answer
from clusterctl.plans.redact import HIDDEN

STEP_LIMIT = 5.0  # seconds for one step of one try: connecting, each piece of the answer
ALL_LIMIT = 15.0  # seconds for all notifications with all their tries
TRIES = 2
PAUSE = 1.0
LONGEST_ANSWER = 4096


@dataclass(frozen=True)
class Letter:
    """One message on its way to a service."""

    service: str
    url: str
    post: Post


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: the message was meant for the first address alone."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""
        return


def find_fault(service: str, url: str) -> str:
    """Say why a URL cannot be used, without it; nothing if it can."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("https", "http") or not host or not url.isprintable() or " " in url:
        return "it is not a URL that begins with https://"
    if parts.scheme == "http" and service != "webhook" and not _is_here(host):
        return f"{service} wants https://"
    return ""


def send_all(letters: Sequence[Letter]) -> list[str]:
    """Send all at once; gives why each could not be sent, or nothing, in the order of the letters."""
    said = [f"no answer within {ALL_LIMIT:g} s"] * len(letters)

    def work(number: int) -> None:
        said[number] = send(letters[number])

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(letters))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + ALL_LIMIT
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return list(said)


def send(letter: Letter) -> str:
    """Send one message, and once more if the service may only have been busy; gives why it could not be sent."""
    said = ""
    for attempt in range(TRIES):
        time.sleep(PAUSE * attempt)
        said, again = _try_once(letter)
        if not again:
            break
    return said


def _try_once(letter: Letter) -> tuple[str, bool]:
    parts = urlsplit(letter.url)
    url = letter.url + (("&" if parts.query else "?") + letter.post.query if letter.post.query else "")
    body = json.dumps(letter.post.body, ensure_ascii=False).encode("utf-8", "replace")
    try:
        status, answer = _post(url, body, {"Content-Type": "application/json; charset=utf-8"})
    except urllib.error.URLError as error:
        return _redact(_explain(error.reason), letter), True
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _redact(_explain(error), letter), True
    return _redact(read_answer(letter.service, status, answer), letter), status == 429 or status >= 500


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    """Post, and read the beginning of the answer, whatever its status is."""
    here = _is_here(urlsplit(url).hostname or "")
    opener = urllib.request.build_opener(
        NoRedirect,
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        *([urllib.request.ProxyHandler({})] if here else []),
    )
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    try:
        with opener.open(request, timeout=STEP_LIMIT) as answer:
            return answer.status, answer.read(LONGEST_ANSWER).decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read(LONGEST_ANSWER).decode("utf-8", "replace")


def _explain(error: object) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return f"no answer within {STEP_LIMIT:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, socket.gaierror):
        return "its name is not known here"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return f"it does not answer as a web server does ({type(error).__name__})"


def _redact(text: str, letter: Letter) -> str:
    """Take every part of the URL that could be a secret out of what a service or the system said."""
    parts = urlsplit(letter.url)
    pieces = [letter.url, parts.path, parts.query, letter.post.query, parts.username, parts.password]
    pieces += parts.path.split("/") + [piece.partition("=")[2] for piece in parts.query.split("&")]
    for piece in sorted({piece for piece in pieces if piece and len(piece) >= 6}, key=len, reverse=True):
        text = text.replace(piece, HIDDEN)
    return text


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
