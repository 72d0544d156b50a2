"""Messages to web services over real sockets: forms, signatures, limits, refusals, and no secret in any word."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clusterctl.client.local import notify
from clusterctl.client.local.notify import Delivery, find_url_problem, send, send_all
from clusterctl.plans.notify import WebhookRequest

TOKEN = "tok-8d1f0c2e77"


@dataclass
class Service:
    """A web server on loopback: gives the answers in turn, the last one for good, and keeps what it got."""

    answers: list[tuple[int, str]]
    got: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    location: str = ""
    url: str = ""

    def letter(self, service: str = "webhook", query: str = "", path: str = f"/hook/{TOKEN}") -> Delivery:
        """Address a message to it."""
        return Delivery(service, f"{self.url}{path}", WebhookRequest({"text": "grün 坏"}, query))


class Handler(BaseHTTPRequestHandler):
    """Takes posts."""

    service: Service

    def do_POST(self) -> None:
        """Answer the next answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.service.got.append((self.path, dict(self.headers), body))
        status, said = self.service.answers[min(len(self.service.got), len(self.service.answers)) - 1]
        self.send_response(status)
        if self.service.location:
            self.send_header("Location", self.service.location)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: Any) -> None:
        """Be quiet."""


Make = Callable[..., Service]


@pytest.fixture
def serve() -> Iterator[Make]:
    """Start services; all are gone after the test."""
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: tuple[int, str]) -> Service:
        service = Service(list(answers))
        handler = type("ServiceHandler", (Handler,), {"service": service})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        return service

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def mute() -> Iterator[str]:
    """Give the URL of a server that takes connections and reports nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/{TOKEN}"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less long than for a real service."""
    monkeypatch.setattr(notify, "STEP_LIMIT", 2.0)
    monkeypatch.setattr(notify, "PAUSE", 0.05)


def test_a_message_arrives(serve: Make) -> None:
    """As UTF-8 JSON, at the very path; a signature goes into the URL."""
    service = serve((200, "ok"))

    assert send(service.letter("slack")) == ""
    assert send(service.letter(query="timestamp=1&sign=a%2B")) == ""
    assert send(service.letter(query="timestamp=1", path="/robot?access_token=x")) == ""
    assert [path for path, _, _ in service.got] == [
        f"/hook/{TOKEN}",
        f"/hook/{TOKEN}?timestamp=1&sign=a%2B",
        "/robot?access_token=x&timestamp=1",
    ]
    assert service.got[0][2] == {"text": "grün 坏"}
    assert service.got[0][1]["Content-Type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("first", "tries"), [((503, "busy"), 2), ((429, "slow"), 2), ((404, "no_service"), 1)]
)
def test_it_is_tried_once_more_where_that_may_help(serve: Make, first: tuple[int, str], tries: int) -> None:
    """After a 5xx or a 429, not after a no."""
    service = serve(first, (200, "ok"))
    said = send(service.letter("slack"))

    assert len(service.got) == tries
    assert said == ("" if tries == 2 else "HTTP 404: no_service")


def test_it_is_not_tried_for_ever(serve: Make) -> None:
    """Two tries, and the service's own words."""
    service = serve((500, "out\nof\x1b[31m order"))

    assert send(service.letter()) == "HTTP 500: out of [31m order"
    assert len(service.got) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(serve: Make, status: int) -> None:
    """Neither as GET nor as POST: nothing else gets the message."""
    other, service = serve((200, "ok")), serve((status, ""))
    service.location = other.url

    assert send(service.letter()) == f"HTTP {status}: redirects are not followed"
    assert other.got == []


def test_no_service_listens() -> None:
    """A refused connection is reported."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]

    assert send(Delivery("slack", f"http://127.0.0.1:{port}/", WebhookRequest({}))) == "Connection refused"


def test_silence_has_a_limit(mute: str) -> None:
    """Two tries of one step each."""
    said = send(Delivery("webhook", mute, WebhookRequest({})))

    assert said == "no answer within 2 s"


def test_a_server_that_drips_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time and the whole never does; the other messages are not kept waiting."""
    monkeypatch.setattr(notify, "ALL_LIMIT", 1.0)
    stop = threading.Event()

    def drip(server: socket.socket) -> None:
        client, _ = server.accept()
        with client:
            while not stop.wait(0.1):
                client.send(b"H")

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        dripping = threading.Thread(target=drip, args=(server,), daemon=True)
        dripping.start()
        said = send_all(
            [Delivery("slack", f"http://127.0.0.1:{server.getsockname()[1]}/", WebhookRequest({}))]
        )
        stop.set()
        dripping.join()

    assert said == ["no answer within 1 s"]


def test_garbage_is_no_answer(serve: Make) -> None:
    """A server that uses no HTTP, and one that reports no with status 200."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def speak() -> None:
            for _ in range(2):
                client, _ = server.accept()
                with client:
                    client.recv(65536)
                    client.sendall(b"SSH-2.0-nope\r\n")

        threading.Thread(target=speak, daemon=True).start()
        said = send(Delivery("webhook", f"http://127.0.0.1:{server.getsockname()[1]}/", WebhookRequest({})))

    assert said == "the answer is not HTTP (BadStatusLine)"
    assert send(serve((200, '{"errcode": 310000, "errmsg": "sign not match"}')).letter("dingtalk")).endswith(
        "not match"
    )


def test_all_go_out_at_once(serve: Make, mute: str) -> None:
    """One that is silent does not hold up the others; the answers keep their order."""
    service = serve((200, "ok"))
    letters = [Delivery("slack", mute, WebhookRequest({})), service.letter(), service.letter("wecom")]

    assert send_all(letters) == ["no answer within 2 s", "", "not a reply of wecom: ok"]
    assert send_all([]) == []


def test_no_word_holds_the_secret(serve: Make) -> None:
    """Services that echo the address, and query values, are redacted."""
    echo = serve((400, f"bad hook /hook/{TOKEN} or {TOKEN}?key={TOKEN}&sign=abcdefgh"))
    said = send(
        replace(echo.letter(path=f"/hook/{TOKEN}?key={TOKEN}"), message=WebhookRequest({}, "sign=abcdefgh"))
    )

    assert said.startswith("HTTP 400: bad hook")
    assert TOKEN not in said
    assert "abcdefgh" not in said


@pytest.mark.parametrize(
    ("service", "url", "fault"),
    [
        ("slack", "https://hooks.slack.com/services/T/B/X", ""),
        ("slack", "http://127.0.0.1:8000/x", ""),
        ("slack", "http://[::1]:8000/x", ""),
        ("webhook", "http://alerts.intern/x", ""),
        ("slack", "http://hooks.slack.com/x", "slack requires https://"),
        ("feishu", "http://127.0.0.1.evil.example/x", "feishu requires https://"),
        ("webhook", "file:///etc/passwd", "it is not a URL that begins with https://"),
        ("webhook", "ftp://a/b", "it is not a URL that begins with https://"),
        ("webhook", "hooks.slack.com/x", "it is not a URL that begins with https://"),
        ("webhook", "https://a/b c", "it is not a URL that begins with https://"),
        ("webhook", "https://a/b\r\nX: y", "it is not a URL that begins with https://"),
        ("webhook", "https://a:port/", "it is not a URL"),
        ("webhook", "https://[/", "it is not a URL"),
        ("webhook", "", "it is not a URL that begins with https://"),
    ],
)
def test_urls(service: str, url: str, fault: str) -> None:
    """The web only, encrypted but for a plain webhook or this machine; what is wrong is reported without the URL."""
    assert find_url_problem(service, url) == fault


def test_a_certificate_is_looked_at(self_signed: tuple[str, str]) -> None:
    """A server that no one vouches for gets nothing."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed)
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Unseen", (Handler,), {"service": Service([(200, "ok")])})
    )
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the refused handshakes are no news
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        said = send(Delivery("slack", f"https://127.0.0.1:{server.server_address[1]}/x", WebhookRequest({})))
    finally:
        server.shutdown()
        server.server_close()

    assert said.startswith("its certificate is not trusted: self")


@pytest.fixture
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Make a certificate of one's own, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = built.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    pem, private = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*form))
    return str(pem), str(private)
