"""Post notifications, run on_end.

Post a message to a URL that is a secret: bounded time, one more try, no redirect, no part of it in any message.

| CC-END-001 | the command of `on_end` failed or took too long  | reported; the verdict stays                |
| CC-END-002 | a notification could not be sent                 | reported; the verdict stays                |
| CC-END-003 | a URL or secret is not set, or no URL of the web | UsageError before a launch, reported after |
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from clusterctl.interrupts import INTERRUPTS
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.notify import WebhookRequest, describe_rejection
from clusterctl.protocol.redact import REDACTED
from clusterctl.translation import tr

STEP_LIMIT = 5.0  # seconds for one step of one try: connecting, each piece of the answer
ALL_LIMIT = 15.0  # seconds for all notifications with all their tries
TRIES = 2
PAUSE = 1.0
MAX_ANSWER = 4096  # bytes


@dataclass(frozen=True)
class Delivery:
    """One message on its way to a service."""

    service: str
    url: str
    message: WebhookRequest


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: the message was meant for the first address alone."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""
        return


def find_url_problem(service: str, url: str) -> str:
    """Describe why a URL cannot be used, without it; nothing if it can."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return tr("it is not a URL")
    if parts.scheme not in ("https", "http") or not host or not url.isprintable() or " " in url:
        return tr("it is not a URL that begins with https://")
    if parts.scheme == "http" and service != "webhook" and not _is_loopback(host):
        return tr("{service} requires https://", service=service)
    return ""


def send_all(deliveries: Sequence[Delivery]) -> list[str]:
    """Send all at once; returns why each could not be sent, or nothing, in the order of `deliveries`."""
    problems = [tr("no answer within {limit:g} s", limit=ALL_LIMIT)] * len(deliveries)

    def work(index: int) -> None:
        problems[index] = send(deliveries[index])

    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(deliveries))
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + ALL_LIMIT
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(problems)


def send(delivery: Delivery) -> str:
    """Send one message, and once more if the service may only have been busy; returns why it could not be sent."""
    problem = ""
    for attempt in range(TRIES):
        time.sleep(PAUSE * attempt)
        problem, retry = _try_once(delivery)
        if not retry:
            break
    return problem


def _try_once(delivery: Delivery) -> tuple[str, bool]:
    parts = urlsplit(delivery.url)
    url = delivery.url + (
        ("&" if parts.query else "?") + delivery.message.query if delivery.message.query else ""
    )
    body = json.dumps(delivery.message.body, ensure_ascii=False).encode("utf-8", "replace")
    try:
        status, answer = _post(url, body, {"Content-Type": "application/json; charset=utf-8"})
    except urllib.error.URLError as error:
        return _redact(_explain(error.reason), delivery), True
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _redact(_explain(error), delivery), True
    return _redact(
        describe_rejection(delivery.service, status, answer), delivery
    ), status == 429 or status >= 500


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    """Post, and read the beginning of the answer, whatever its status is."""
    is_local = _is_loopback(urlsplit(url).hostname or "")
    opener = urllib.request.build_opener(
        NoRedirect,
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        *([urllib.request.ProxyHandler({})] if is_local else []),
    )
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    try:
        with opener.open(request, timeout=STEP_LIMIT) as answer:
            return answer.status, answer.read(MAX_ANSWER).decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read(MAX_ANSWER).decode("utf-8", "replace")


def _explain(error: object) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return tr("no answer within {limit:g} s", limit=STEP_LIMIT)
    if isinstance(error, ssl.SSLCertVerificationError):
        return tr("its certificate is not trusted: {reason}", reason=error.verify_message)
    if isinstance(error, socket.gaierror):
        return tr("its host name cannot be resolved")
    if isinstance(error, OSError):
        return describe_system_error(error) or type(error).__name__
    return tr("the answer is not HTTP ({error})", error=type(error).__name__)


def _redact(text: str, delivery: Delivery) -> str:
    """Take every part of the URL that could be a secret out of what a service or the system reported."""
    parts = urlsplit(delivery.url)
    pieces = [delivery.url, parts.path, parts.query, delivery.message.query, parts.username, parts.password]
    pieces += parts.path.split("/") + [piece.partition("=")[2] for piece in parts.query.split("&")]
    for piece in sorted({piece for piece in pieces if piece and len(piece) >= 6}, key=len, reverse=True):
        text = text.replace(piece, REDACTED)
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


STDERR = 2
TERM_GRACE = 2.0  # seconds between TERM and KILL


def run_command(command: Sequence[str], text: str, folder: str, limit: float) -> str:
    """Return it a text on stdin and wait; returns how it failed, or nothing. Its whole session ends at the limit."""
    try:
        child = subprocess.Popen(
            list(command),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=STDERR,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return tr("cannot be run: {reason}", reason=describe_system_error(error))
    try:
        with suppress(BrokenPipeError):  # it need not read
            data = text.encode("utf-8", "replace")
            INTERRUPTS.call(lambda: child.communicate(data, timeout=limit))
        status = INTERRUPTS.call(lambda: child.wait(limit))
    except subprocess.TimeoutExpired:
        _kill_session(child)
        return tr("was stopped after {limit:g} s", limit=limit)
    except BaseException:
        _kill_session(child)
        raise
    if status < 0:
        return tr("was killed by signal {number}", number=-status)
    return tr("exited with code {status}", status=status) if status else ""


def _kill_session(child: subprocess.Popen[bytes]) -> None:
    """End its whole session: what it started is killed too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(TERM_GRACE)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
