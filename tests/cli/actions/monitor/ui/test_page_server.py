"""The server of `ui`: a taken port, who is served, what the answers forbid, a stream that goes on after a cut."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import socket
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest
from page_client import ask, find_known, press, serve_page, stream
from waiting import HANG, wait_until

from clusterctl.cli.actions.monitor.ui import connections
from clusterctl.cli.actions.monitor.ui import feed as feeds
from clusterctl.cli.actions.monitor.ui import server as servers
from clusterctl.cli.actions.monitor.ui.connections import MAX_CONNECTIONS, MAX_HEAD, MAX_UNPROVEN, find_owners
from clusterctl.cli.actions.monitor.ui.feed import UnknownRunError, View, WholeLog
from clusterctl.cli.actions.monitor.ui.fragments import render_lines
from clusterctl.cli.actions.monitor.ui.server import (
    HEADERS,
    MAX_BODY,
    UiServer,
    has_browser,
    is_remote,
    serve,
)
from clusterctl.errors import ConnectionLost, UsageError
from clusterctl.plans.report.markup import Html
from clusterctl.protocol.run_id import RunId

RUN = RunId("digits-20261123T070708-923c")
HOSTILE = "</div><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"


@dataclass
class PlainSource:
    """What a page shows, as plain values; notes which buttons were pressed."""

    pressed: list[tuple[str, str]] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)
    silent: tuple[str, ...] = ()

    def follow(self, view: View) -> None:
        """Show a name and two lines that a node made up."""
        self.views.append(view)
        view.publish("runs", render_lines([HOSTILE]))
        view.add_lines(HOSTILE, 0, "", ["first", HOSTILE])
        while view.pause(0.01):
            pass
        self.let_go.set()

    def find(self, text: str) -> RunId:
        """Find the run by its short id too."""
        return find_known(text)

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return two pieces, or report that the run is gone."""
        return WholeLog(self._read_pieces(run_id), self.silent)

    def _read_pieces(self, run_id: RunId) -> Generator[str, None, None]:
        if run_id != RUN:
            raise UnknownRunError("it is gone")
        try:
            yield "first\n"
            yield f"{HOSTILE}\n"
        finally:
            self.pressed.append(("log", run_id))

    def diagnose(self, run_id: str) -> Html:
        """Answer with what a rank wrote."""
        self.pressed.append(("diagnose", run_id))
        return render_lines([HOSTILE])

    def stop(self, run_id: str) -> Html:
        """Note it."""
        self.pressed.append(("stop", run_id))
        return render_lines(["stopped"])


@pytest.fixture
def source() -> PlainSource:
    """Give the contents."""
    return PlainSource()


@pytest.fixture
def server(source: PlainSource) -> Iterator[UiServer]:
    """Serve them."""
    with serve_page(source, HOSTILE) as running:
        yield running


@pytest.mark.parametrize(
    ("method", "name", "headers", "status"),
    [
        ("GET", "", {}, 200),
        ("GET", "", {"Host": "localhost:8471"}, 200),  # a port that SSH forwards
        ("GET", "", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),  # a link
        ("GET", "page.js", {"Sec_Fetch_Site": "same-origin"}, 200),
        ("GET", "page.js", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
        ("GET", "events", {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"}, 403),
        ("GET", "", {"Host": "evil.example"}, 403),  # DNS rebinding
        ("GET", "", {"Host": "127.0.0.1.evil.example:80"}, 403),
        ("GET", "", {"Host": ""}, 403),
        ("GET", "/", {}, 403),
        ("GET", f"/{'x' * 32}/", {}, 403),
        ("GET", f"/{'x' * 32}/events", {}, 403),
        ("GET", "/favicon.ico", {}, 403),
        ("GET", "/open/x", {}, 403),
        ("GET", "http://evil.example/", {}, 403),
        ("GET", "server.py", {}, 404),
        ("GET", "../server.py", {}, 404),
        ("GET", "stop", {}, 405),
        ("GET", "open", {}, 405),
        ("HEAD", "", {}, 405),
        ("PUT", "stop", {}, 405),
        ("OPTIONS", "stop", {}, 405),
        ("BREW", "", {}, 501),
        ("GET", f"events?run={'x' * 3000}", {}, 414),
        ("GET", "events?run=..%2f..", {}, 400),
        ("GET", "events?run=1acx", {}, 404),
        ("GET", "log?run=..%2f..", {}, 400),
        ("GET", "log?run=1acx", {}, 404),
        ("GET", f"log?run={RUN[:-1]}d", {}, 404),
        ("GET", f"log?run={RUN}", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
        ("GET", "log?run=923c", {"Sec_Fetch_Site": "same-origin"}, 200),
    ],
)
def test_only_our_page_is_served(
    server: UiServer, method: str, name: str, headers: dict[str, str], status: int
) -> None:
    """The token, the host and the method decide; each answer has the headers that forbid everything else."""
    got, answered, text = ask(
        server.url, method, name if not name.startswith("http") else f"/{name}", **headers
    )
    assert got == status, text
    assert HEADERS.items() <= answered.items()
    assert server.token not in text


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, None, 200),
        ({"Origin": "", "Sec_Fetch_Site": "same-origin"}, None, 200),
        ({"Origin": "http://evil.example"}, None, 403),
        ({"Origin": "null"}, None, 403),
        ({"Origin": "http://127.0.0.1:1"}, None, 403),  # another server of this machine
        ({"Origin": ""}, None, 403),
        ({"Sec_Fetch_Site": "cross-site"}, None, 403),
        ({"Content_Type": "text/plain"}, None, 415),  # a form of another page can send it without asking
        ({}, b"x" * (MAX_BODY + 1), 413),
        ({"Content_Length": "-1"}, None, 411),
        ({"Transfer_Encoding": "chunked"}, None, 411),
        ({}, b"[" * 2000, 400),
        ({}, b'{"run": 7}', 400),
        ({}, b'{"run": "923c"}', 400),  # not by a prefix
    ],
)
def test_only_our_page_can_stop_a_run(
    server: UiServer, source: PlainSource, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    """A POST of this page, with JSON that names the run in full."""
    assert press(server.url, "stop", RUN, body, **headers)[0] == status
    assert source.pressed == ([("stop", RUN)] if status == 200 else [])


def test_what_a_button_shows_is_escaped(server: UiServer) -> None:
    """Also while another answer is awaited no second one is asked for."""
    status, text = press(server.url, "diagnose", RUN)
    assert status == 200 and "<script" not in text and "&lt;script&gt;" in text
    server.asking["diagnose"].acquire()
    assert press(server.url, "diagnose", RUN)[0] == 409 and press(server.url, "stop", RUN)[0] == 200


def start_download(server: UiServer) -> socket.socket:
    """Ask for a log, and read nothing of it yet."""
    connection = connect(server)
    path = f"{server.url.partition(str(server.port))[2]}log?run={RUN}"
    connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return connection


def test_a_browser_that_leaves_ends_its_download(
    server: UiServer, source: PlainSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while no node sends anything; the next one is served."""
    ended = threading.Event()

    def read_nothing(_: RunId) -> Generator[str, None, None]:
        try:
            while not ended.wait(0.01):
                yield ""
        finally:
            ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(source, "read_log", lambda run_id: WholeLog(read_nothing(run_id)))
        with closing(start_download(server)) as connection:
            text = b""
            while not text.endswith(b"\r\n\r\n"):  # what was not read would reset the connection
                text += connection.recv(4096)
            assert ask(server.url, "GET", f"log?run={RUN}")[0] == 409
        gone = ended.wait(HANG)
        ended.set()
        assert gone
    wait_until(lambda: ask(server.url, "GET", f"log?run={RUN}")[0] == 200, "the next one is served")


def test_a_download_that_breaks_is_a_failure_for_the_browser(
    server: UiServer, source: PlainSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is kept, its last line says why, and the connection is reset."""

    def break_off(_: RunId) -> Generator[str, None, None]:
        yield "first\n"
        raise ConnectionLost("CC-SSH-015", node="gpu02")

    monkeypatch.setattr(source, "read_log", lambda run_id: WholeLog(break_off(run_id)))
    with closing(start_download(server)) as connection:
        text = b""
        with pytest.raises(ConnectionResetError):
            while received := connection.recv(4096):
                text += received
    assert b"first\n" in text and b"\nthis log is not complete: CC-SSH-015 " in text


def test_the_name_of_a_log_shows_that_nodes_are_missing(server: UiServer, source: PlainSource) -> None:
    """Those that are known not to answer: a failure would leave no file to read, however often it is tried."""
    name = f'attachment; filename="{RUN}.log"'
    assert ask(server.url, "GET", f"log?run={RUN}")[1]["Content-Disposition"] == name
    source.silent = ("gpu02",)
    name = f'attachment; filename="{RUN}.incomplete.log"'
    assert ask(server.url, "GET", f"log?run={RUN}")[1]["Content-Disposition"] == name


def test_a_fold_is_opened_by_our_page_only(server: UiServer, source: PlainSource) -> None:
    """In the pages of that run; of one that no page shows, nothing."""
    with stream(server.url, RUN) as events:
        events.read("part")
        source.views[0].publish_rows("fold", {"more": render_lines(["folded"])})
        body = f'{{"run": "{RUN}", "name": "more"}}'.encode()
        assert press(server.url, "open", RUN, body, Origin="http://evil.example")[0] == 403
        assert press(server.url, "open", RUN, body.replace(b"923c", b"923d"))[0] == 200
        assert press(server.url, "open", RUN, body)[0] == 200
        assert "folded" in events.read_part("fold/more", "")


class Loaded(HTMLParser):
    """What a page loads or runs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note addresses and handlers."""
        self.found += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href", "style", "action") or name.startswith("on")
        ]


def test_the_page_loads_nothing_but_our_own_files(server: UiServer) -> None:
    """No inline script, style or handler, and no other origin; the policy forbids all of these as well."""
    _, headers, page = ask(server.url, "GET", "")
    files = ["link href=page.svg", "link href=page.css", "script src=page.js"]
    assert Loaded(page).found == [*files, "a href=#main", *["a href=#"] * 3]  # the last is set by the script
    assert re.findall(r"<script[^>]*>(.*?)</script>", page) == [""] and "<style" not in page
    policy = headers["Content-Security-Policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
        assert rule in policy
    assert "unsafe" not in policy and "http" not in policy
    script = ask(server.url, "GET", "page.js")[2]
    assert not re.search(r"https?://|eval\(|insertAdjacentHTML|document\.write|outerHTML|cookie", script)


def test_a_ticket_leads_to_the_page_once(server: UiServer) -> None:
    """The command line of a browser, which other users see, is worth nothing after that."""
    ticket = server.make_ticket().partition(str(server.port))[2]
    status, headers, _ = ask(server.url, "GET", ticket)
    assert (status, headers["Location"]) == (303, f"/{server.token}/")
    assert ask(server.url, "GET", ticket)[0] == 403


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2117 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:D431 0100007F:2117 01 00000000:00000000 00:00000000 00000000  1001        0 12 1 0 20 4 30 10 -1
   2: 0100007F:2117 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0 20 4 30 10 -1
   3: 0500007F:D431 0100007F:2117 01 00000000:00000000 00:00000000 00000000  1003        0 12 1 0 20 4 30 10 -1
   0: 0000000000000000FFFF00000100007F:D432 0000000000000000FFFF00000100007F:2117 01 0:0 00:0 0  1002  0 14 1
"""


@pytest.mark.skipif(sys.byteorder == "big", reason="the table is one of a little-endian machine")
@pytest.mark.parametrize(
    ("client", "owners"),
    [
        (("127.0.0.1", 0xD431), {1001}),
        (("127.0.0.5", 0xD431), {1003}),
        (("127.0.0.1", 0xD432), {1002}),  # by a socket of version 6
        (("127.0.0.1", 0xD433), set()),
    ],
)
def test_whose_the_other_end_is(client: tuple[str, int], owners: set[int]) -> None:
    """Its own row tells, not that of our end."""
    assert find_owners(TABLE, client, 0x2117) == owners


def test_a_ticket_is_for_this_account_only(server: UiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that reads it from the command line of the browser, and is faster, gets and uses up nothing."""
    ticket = server.make_ticket().partition(str(server.port))[2]
    for owners in ({os.getuid() + 1}, {0, os.getuid() + 1}, set()):  # nothing: this system has no such table
        monkeypatch.setattr(servers, "find_owners", lambda *_, owners=owners: owners)
        status, headers, _ = ask(server.url, "GET", ticket)
        assert (status, headers.get("Location")) == (403, None)
    monkeypatch.undo()
    assert ask(server.url, "GET", ticket)[0] == 303


def test_a_run_that_is_left_takes_its_selection_along(server: UiServer) -> None:
    """What is selected is not replaced: the question whether to stop it would be asked for another run."""
    script = ask(server.url, "GET", "page.js")[2]
    navigate = script.partition("function navigate()")[2].partition("connect();")[0]
    before, found, _ = navigate.partition("show(name")
    assert found and "getSelection().removeAllRanges()" in before


def test_a_stream_with_a_high_descriptor(server: UiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of nodes take the low ones, and `select` refuses others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("too few descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    accept = server.get_request

    def accept_high() -> tuple[socket.socket, object]:
        connection, address = accept()
        with connection:
            return socket.socket(
                fileno=fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, 2000)
            ), address

    monkeypatch.setattr(server, "get_request", accept_high)
    try:
        with stream(server.url, RUN) as events:
            events.read("lines")
            server.feed.watch(RUN).__enter__().add_lines("gpu01", 1, "", ["later"])
            assert events.read("lines")[0][4] == "later"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_stream_goes_on_after_a_cut(server: UiServer, source: PlainSource) -> None:
    """With the id of its last event it gets only what came since; with one of another view everything again."""
    with stream(server.url, RUN) as events:
        assert not events.read("begin")["resumed"]
        assert events.read("part")["html"].count("<") == 4  # two elements of ours
        first, second = events.read("lines")
        assert first == [1, HOSTILE, 0, "", "first", None] and second[4] == HOSTILE
    (view,) = source.views
    view.add_lines("gpu01", 1, "stderr", ["third"])
    with stream(server.url, RUN, Last_Event_ID=events.last_id) as again:
        assert again.read("begin")["resumed"]
        assert again.read("lines") == [[3, "gpu01", 1, "stderr", "third", None]]
        view.add_lines("gpu01", 1, "", ["fourth"])
        assert again.read("lines") == [[4, "gpu01", 1, "", "fourth", None]]
    with stream(server.url, RUN, Last_Event_ID=f"{'0' * 8}.4") as other:
        assert not other.read("begin")["resumed"]
        assert [row[0] for row in other.read("lines")] == [1, 2, 3, 4]
    assert source.views == [view]


def test_pages_are_limited_and_their_end_ends_the_questions(
    server: UiServer, source: PlainSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many is refused; when the last page has closed nothing is read from the nodes any more."""
    monkeypatch.setattr(feeds, "MAX_WATCHERS", 2)
    monkeypatch.setattr(feeds, "GRACE", 0.0)
    with stream(server.url, RUN), stream(server.url, RUN):
        assert ask(server.url, "GET", f"events?run={RUN}")[0] == 503
        assert not source.let_go.is_set()
    assert source.let_go.wait(HANG)
    with stream(server.url, RUN) as events:  # and a page that comes back is served
        assert not events.read("begin")["resumed"]


def connect(server: UiServer) -> socket.socket:
    """Connect as any account of the machine can."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=HANG)


def is_cut(connection: socket.socket) -> bool:
    """Wait for the end of a connection that has got no answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_connections_without_the_token_take_no_place_of_the_page(
    server: UiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are open, those with the token are served and stay; the oldest without it makes room."""
    monkeypatch.setattr(connections, "PROOF_LIMIT", HANG)
    with ExitStack() as held, stream(server.url, RUN) as events:
        events.read("begin")
        opened = []
        for _ in range(3 * MAX_CONNECTIONS):
            opened.append(held.enter_context(connect(server)))
            if len(opened) % MAX_CONNECTIONS == 0:
                assert ask(server.url, "GET", "")[0] == 200
        assert all(is_cut(one) for one in opened[:-MAX_UNPROVEN])
        opened[-1].sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"403" in opened[-1].recv(100)
        server.feed.watch(RUN).__enter__().add_lines("gpu01", 1, "", ["later"])
        while events.read("lines")[-1][4] != "later":
            pass


def test_who_takes_too_long_to_show_the_token_is_cut(
    server: UiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that sends a byte now and then, or a head without end; a page that is open is not."""
    with stream(server.url, RUN) as events:
        events.read("begin")
        monkeypatch.setattr(connections, "PROOF_LIMIT", 0.0)
        with closing(connect(server)) as slow:
            slow.sendall(b"GET /")
            assert is_cut(slow)
        monkeypatch.setattr(connections, "PROOF_LIMIT", HANG)
        with closing(connect(server)) as endless, suppress(ConnectionError):
            head = b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * MAX_HEAD
            endless.sendall(head)
            assert b" 431 " in endless.recv(100)
        server.feed.watch(RUN).__enter__().add_lines("gpu01", 1, "", ["later"])
        while events.read("lines")[-1][4] != "later":
            pass


def test_connections_with_the_token_are_limited_too(
    server: UiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that threads are bounded; there is room again once one has ended."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 1)
    with stream(server.url, RUN) as events:
        events.read("begin")
        assert ask(server.url, "GET", "")[0] == 503
    wait_until(lambda: ask(server.url, "GET", "")[0] == 200, "there is room again")


def test_a_port_that_is_taken_is_an_error_with_a_code(source: PlainSource) -> None:
    """Nothing was asked of any node before."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}: Address already in use") as found:
            serve(feeds.Feed(source), "", port, opens_browser=False)
    assert found.value.code == "CC-USE-098"


@pytest.mark.parametrize(
    ("environment", "platform", "remote", "browser"),
    [
        ({}, "linux", False, False),  # one of text would take the terminal
        ({"DISPLAY": ":0"}, "linux", False, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", False, True),
        ({"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22", "DISPLAY": "localhost:10.0"}, "linux", True, True),
        ({}, "darwin", False, True),
    ],
)
def test_a_browser_is_opened_in_front_of_the_user_only(
    environment: dict[str, str], platform: str, remote: bool, browser: bool
) -> None:
    """Over SSH its window would be on another machine, or slow."""
    assert (is_remote(environment), has_browser(environment, platform)) == (remote, browser)
