"""HTTP on 127.0.0.1: who may ask for what, the stream of events, and the browser that is opened.

Every request names the secret token in its path, and this machine in `Host`: other origins do not know
the token, and a page whose name was made to lead here has another host (DNS rebinding). What changes something must be
a POST of our own page besides. There are no cookies.

    GET  /TOKEN/            the page          POST /TOKEN/diagnose   {"run": ID}
    GET  /TOKEN/events      its stream        POST /TOKEN/stop       {"run": ID}
    GET  /TOKEN/log         all lines of a    POST /TOKEN/open       {"run": ID, "name": NAME}
                            run, as a file
    GET  /open/TICKET       leads to the page, once and this account only: others see a browser's command line
"""

from __future__ import annotations

import os
import re
import secrets
import select
import socket
import struct
import sys
import threading
import time
import webbrowser
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from itertools import chain
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from urllib.parse import parse_qs

import click

from clusterctl.cli.actions.monitor.ui.connections import (
    Connections,
    Request,
    find_owners,
    is_own_connection,
    is_same,
    list_connections,
)
from clusterctl.cli.actions.monitor.ui.feed import Cursor, Feed, Line, TooManyError, UnknownRunError, View
from clusterctl.cli.actions.monitor.ui.fragments import describe_failure
from clusterctl.cli.actions.monitor.ui.log_text import IncompleteError, describe_incomplete
from clusterctl.cli.context.nodes import current_owner
from clusterctl.console.terminal import hint, info
from clusterctl.console.text import json_text
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS, announce_nothing
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.report.markup import ICON_FILE, SCRIPT_FILE, STYLE, STYLE_FILE
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.protocol.untrusted import MalformedError, Untrusted, parse_object
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

TOKEN_BYTES = 24
TICKET_LIFE = 60.0  # seconds
MAX_BODY, MAX_PATH = 4096, 2048
TIMEOUT = 20.0  # seconds that a client may take for one read or write
BEAT = 10.0  # seconds between two signs of life of a stream
PACE = 0.2  # seconds between two messages of a stream
CHECK = 1.0  # seconds between two looks whether a page is still there
RETRY = 2000  # milliseconds after which a page connects again
PACKING, GZIP = "gzip", 31  # window of zlib, with the head of gzip
RESET = struct.pack("ii", 1, 0)  # lingers for no time: closing resets the connection
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")  # an id, its beginning, or a short id
HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FOLDER = Path(__file__).parent
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
CROSSHAIR = "crosshair.js"  # sent with the script of the page
GETS = {"", "events", "log", STYLE_FILE, SCRIPT_FILE, ICON_FILE}
BUTTONS = {"diagnose", "stop"}
POSTS = {*BUTTONS, "open"}
MAX_NAME = 300  # characters of a fold's name
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT")


class RefusedError(Exception):
    """A request that is not served; `code` is the status of the answer."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class UiServer(ThreadingMixIn, TCPServer):
    """Listens on the loopback address only; one thread for each of a bounded number of connections.

    serve_forever --add--> without the token --prove--> with it
                                |  too many, too slow
                                +--> cut
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, feed: Feed, page: str) -> None:
        """Listen; OSError if the port cannot be had."""
        self.feed, self.page = feed, page
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.asking = {
            name: threading.Lock() for name in {*BUTTONS, "log"}
        }  # held while the nodes answer to a button
        self.connections = Connections()
        self._tickets: dict[str, float] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Return the address of the page; who knows it may use it."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def make_ticket(self) -> str:
        """Return an address that leads to the page once, and soon."""
        ticket = secrets.token_urlsafe(TOKEN_BYTES)
        with self._lock:
            self._tickets[ticket] = time.monotonic() + TICKET_LIFE
        return f"http://127.0.0.1:{self.port}/open/{ticket}"

    def use_ticket(self, text: str) -> bool:
        """Return whether this is a ticket that was not used yet, and use it."""
        with self._lock:
            found = next((one for one in self._tickets if is_same(one, text)), None)
            return found is not None and self._tickets.pop(found) >= time.monotonic()

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Count a connection, and serve it in a thread."""
        if isinstance(request, socket.socket):
            self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Make room for another, and close it."""
        if isinstance(request, socket.socket):
            self.connections.remove(request)
            linger = request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(RESET))
            if struct.unpack("ii", linger)[0]:
                self.close_request(request)  # without the FIN by which an answer ends
                return
        super().shutdown_request(request)

    @staticmethod
    def reset_at_end(connection: socket.socket) -> None:
        """Make the end of a connection a failure for the other side."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def service_actions(self) -> None:
        """Cut who takes too long to show the token; called a few times in a second."""
        self.connections.cut_late()

    def handle_error(self, request: object, client_address: object) -> None:
        """Report nothing: a client that goes away is no error, and one that breaks the protocol gets no lines here."""


class Handler(BaseHTTPRequestHandler):
    """One request on one connection, which is closed after it (HTTP/1.0)."""

    server: UiServer
    timeout = TIMEOUT

    def setup(self) -> None:
        """Limit what is read before the token is known."""
        super().setup()
        self.rfile = Request(self.rfile)

    def serve(self) -> None:
        """Answer; what is refused is answered, too."""
        with suppress(OSError):  # the client went away
            try:
                self._route(self.command)
            except RefusedError as refusal:
                self._answer(refusal.code, TEXT, f"{refusal}\n".encode())

    def _route(self, method: str) -> None:
        host = self._check_host()
        path, _, query = self.path.partition("?")
        if len(self.path) > MAX_PATH:
            raise RefusedError(414, tr("the path is too long"))
        if path.startswith("/open/") and method == "GET":
            self._open(path.removeprefix("/open/"))
            return
        token, _, name = path.removeprefix("/").partition("/")
        if not is_same(self.server.token, token):
            raise RefusedError(
                403, tr("the token is missing or wrong; open the address that `clusterctl ui` prints")
            )
        if not self.server.connections.prove(self.connection):
            raise RefusedError(503, tr("too many connections are open"))
        allowed = {"GET": GETS, "POST": POSTS}.get(method, set())
        if name not in allowed:
            raise RefusedError(
                405 if name in GETS | POSTS else 404, tr("no such page, or not by this method")
            )
        if method == "POST":
            self._check_origin(host)
            body = self._read_body()
            run_id = parse_run_id(body.text("run"))
            if run_id is None:
                raise RefusedError(400, tr("the body names no run"))
            self._act(name, run_id, body.text("name", MAX_NAME))
        else:
            self._check_navigation(is_page=not name)
            self._get(name, query)

    def _check_host(self) -> str:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not HOST.fullmatch(hosts[0]):
            raise RefusedError(403, tr("the Host is not this machine"))
        return hosts[0]

    def _check_origin(self, host: str) -> None:
        """Refuse what another page sends; a browser sends both headers with a POST, and no page can change them."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        is_known = origin is not None or site is not None
        if not is_known or origin not in (None, f"http://{host}") or site not in (None, "same-origin"):
            raise RefusedError(403, tr("the request does not come from this page"))

    def _check_navigation(self, *, is_page: bool) -> None:
        """Refuse what is loaded by a page of another origin; a link on one may lead to the page itself."""
        site, mode = self.headers.get("Sec-Fetch-Site"), self.headers.get("Sec-Fetch-Mode")
        if site not in (None, "none", "same-origin") and not (is_page and mode == "navigate"):
            raise RefusedError(403, tr("the request comes from another page"))

    def _open(self, ticket: str) -> None:
        owners = find_owners(list_connections(), self.client_address, self.server.port)
        if not is_own_connection(owners) or not self.server.use_ticket(ticket):
            raise RefusedError(
                403, tr("this link was used or is too old; open the address that `clusterctl ui` prints")
            )
        self._answer(303, TEXT, b"", {"Location": f"/{self.server.token}/"})

    def _get(self, name: str, query: str) -> None:
        if name == "events":
            self._stream(query)
        elif name == "log":
            self._download(query)
        elif name == STYLE_FILE:
            style = f"{STYLE}{(FOLDER / STYLE_FILE).read_text(encoding='utf-8')}"
            self._answer(200, "text/css; charset=utf-8", style.encode())
        elif name == SCRIPT_FILE:
            script = b"".join((FOLDER / name).read_bytes() for name in (SCRIPT_FILE, CROSSHAIR))
            self._answer(200, "text/javascript; charset=utf-8", script)
        elif (
            name == ICON_FILE
        ):  # else a browser asks for /favicon.ico, which the policy stops with a complaint
            self._answer(200, "image/svg+xml", (FOLDER / ICON_FILE).read_bytes())
        else:
            self._answer(200, HTML, self.server.page.encode())

    def _read_body(self) -> Untrusted:
        """Read the body of a POST: which run is meant, in full; nothing where it is no object."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get_content_type() != JSON:
            raise RefusedError(415, tr("the body is not JSON"))
        if not re.fullmatch("[0-9]{1,9}", length, re.ASCII) or self.headers.get("Transfer-Encoding"):
            raise RefusedError(411, tr("the length of the body is missing"))
        if int(length) > MAX_BODY:
            raise RefusedError(413, tr("the body is too large"))
        try:
            return parse_object(self.rfile.read(int(length)))
        except MalformedError:
            return Untrusted({})

    def _act(self, name: str, run_id: RunId, fold: str) -> None:
        if name not in BUTTONS:
            self.server.feed.open(run_id, fold)
            self._answer(200, JSON, b"{}")
            return
        asking = self.server.asking[name]
        if not asking.acquire(blocking=False):
            raise RefusedError(409, tr("the nodes are being asked already"))
        try:
            source = self.server.feed.source
            html = (source.stop if name == "stop" else source.diagnose)(run_id)
        finally:
            asking.release()
        self._answer(200, JSON, json_text({"html": html.markup}).encode())

    def _stream(self, query: str) -> None:
        asked = parse_qs(query, max_num_fields=4, errors="replace")
        text = asked.get("run", [""])[-1]
        run_id = self._find(text) if text else RunId("")
        event_id = self.headers.get("Last-Event-ID") or asked.get("last", [""])[-1]
        try:
            with self.server.feed.watch(run_id) as view:
                self._send_events(view, view.resume(event_id))
        except TooManyError:
            raise RefusedError(503, tr("too many pages are open; close one of them")) from None

    def _find(self, text: str) -> RunId:
        if not RUN.fullmatch(text):
            raise RefusedError(400, tr("this is no run"))
        try:
            return self.server.feed.source.find(text)
        except UnknownRunError as error:
            raise RefusedError(404, str(error)) from None

    def _download(self, query: str) -> None:
        """Send the whole log as a file, as fast as it is taken; one at a time, each asks all nodes of the run."""
        asked = parse_qs(query, max_num_fields=4, errors="replace")
        run_id = self._find(asked.get("run", [""])[-1])
        asking = self.server.asking["log"]
        if not asking.acquire(blocking=False):
            raise RefusedError(409, tr("another log is being downloaded already"))
        try:
            log = self.server.feed.source.read_log(run_id)
            with closing(log.pieces) as pieces:
                first = next(pieces, "")  # before the answer begins: there may be none
                file = f"{run_id}.log" if not log.silent else f"{run_id}.incomplete.log"
                self._begin(200, TEXT, {"Content-Disposition": f'attachment; filename="{file}"'})
                self._send_pieces(chain([first], pieces))
        except UnknownRunError as error:
            raise RefusedError(404, str(error)) from None
        finally:
            asking.release()

    def _send_pieces(self, pieces: Iterable[str]) -> None:
        """Send a text until its end, or the browser is gone; an error is named in it, and fails for the browser too."""
        try:
            for piece in pieces:
                if self._has_left():
                    return
                if piece:
                    self.wfile.write(piece.encode("utf-8", "replace"))
        except Exception as error:  # the length is not known before, so a mere end would look like success
            self.server.reset_at_end(self.connection)
            self.connection.settimeout(CHECK)
            self.wfile.write(f"\n{describe_incomplete(_describe(error))}".encode("utf-8", "replace"))

    def _send_events(self, view: View, cursor: Cursor) -> None:
        """Send what is new until the page is gone or the server ends, compressed: redrawn plots are much alike."""
        is_packed = PACKING in self.headers.get("Accept-Encoding", "")
        self._begin(
            200, "text/event-stream; charset=utf-8", {"Content-Encoding": PACKING} if is_packed else {}
        )
        packer = zlib.compressobj(wbits=GZIP)

        def send(message: bytes) -> None:
            packed = packer.compress(message) + packer.flush(zlib.Z_SYNC_FLUSH) if is_packed else message
            self.wfile.write(packed)

        begin = {"resumed": cursor.line > 0, "run": view.run_id, "now": time.time()}
        send(f"retry: {RETRY}\n".encode() + _event("begin", begin))
        last_sent = time.monotonic()
        while (update := view.read(cursor, CHECK)) is not None and not self._has_left():
            message = _events(view, *update)
            if message or time.monotonic() - last_sent > BEAT:
                send(message or b": beat\n\n")
                last_sent = time.monotonic()
                time.sleep(PACE)

    def _has_left(self) -> bool:
        """Return whether the other side has closed the connection."""
        poller = select.poll()  # `select` takes no descriptor above 1023, and each node's connection has some
        poller.register(self.connection, select.POLLIN)
        if not poller.poll(0):
            return False
        return not self.connection.recv(1, socket.MSG_PEEK)

    def _answer(self, code: int, kind: str, content: bytes, more: Mapping[str, str] | None = None) -> None:
        self._begin(code, kind, {"Content-Length": str(len(content)), **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _begin(self, code: int, kind: str, more: Mapping[str, str]) -> None:
        self.send_response_only(code)
        for name, value in {"Content-Type": kind, **HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the base's signature
        """Answer to what is no request of HTTP; nothing of it is repeated."""
        self.command = self.command or "GET"
        with suppress(OSError):
            self._answer(int(code), TEXT, b"not a request that is served here\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Write no log: paths hold the token."""


for _method in METHODS:
    setattr(Handler, f"do_{_method}", Handler.serve)  # the name that the base class looks for


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return describe_system_error(error)
    if isinstance(error, IncompleteError):
        return str(error)
    failure = describe_failure(error)
    return f"{failure.code} {failure.message}"


def _events(view: View, parts: Mapping[str, str], lines: Sequence[Line]) -> bytes:
    """Write what is new as events; the id of the last line lets a page go on after it."""
    content = b"".join(_event("part", {"name": name, "html": html}) for name, html in parts.items())
    if lines:
        rows = [[one.number, one.node, one.rank, one.label, one.text, one.time] for one in lines]
        content += f"id: {view.epoch}.{lines[-1].number}\n".encode() + _event("lines", rows)
    return content


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json_text(data)}\n\n".encode()


def serve(feed: Feed, page: str, port: int, *, opens_browser: bool) -> int:
    """Serve a page until Ctrl-C, and open a browser where there is one; UsageError if the port cannot be had."""
    try:
        server = UiServer(port, feed, page)
    except OSError as error:
        raise UsageError("CC-USE-098", port=port, reason=describe_system_error(error)) from error
    try:
        _announce(server, opens_browser=opens_browser)
        with INTERRUPTS.leaving(announce_nothing):
            INTERRUPTS.call(server.serve_forever)
    except KeyboardInterrupt:
        return INTERRUPTS.exit_code_of_server
    finally:
        feed.close()
        server.server_close()
    return 0


def _announce(server: UiServer, *, opens_browser: bool) -> None:
    click.echo(server.url)
    if is_remote(os.environ):
        host = f"{current_owner().name.partition('@')[0]}@{socket.gethostname()}"
        command = command_line("ssh", "-N", "-L", f"{server.port}:127.0.0.1:{server.port}", host)
        hint(tr("on your own machine: {command}, then open the address above", command=command))
    elif opens_browser and has_browser(os.environ, sys.platform):
        threading.Thread(target=_open, args=(server.make_ticket(),), daemon=True).start()
    info(tr("keep the address secret: with it, runs can be stopped; Ctrl-C ends the page"))
    sys.stdout.flush()


def is_remote(environment: Mapping[str, str]) -> bool:
    """Return whether this is a login over SSH, so that a browser here is not in front of the user."""
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))


def has_browser(environment: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser would have a window: one of text would take this terminal."""
    graphical = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return platform == "darwin" or any(environment.get(name) for name in graphical)


def _open(address: str) -> None:
    with suppress(Exception):  # the address is on the terminal
        webbrowser.open(address)
