"""The page of `ui` with contents of a test, and a client by plain HTTP: requests as a browser sends them, or not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from waiting import HANG

from clusterctl.cli.actions.monitor.ui.feed import Feed, Source, UnknownRunError
from clusterctl.cli.actions.monitor.ui.server import UiServer
from clusterctl.cli.actions.monitor.ui.skeleton import render_page
from clusterctl.protocol.run_id import RunId, parse_run_id


@contextmanager
def serve_page(source: Source, cluster: str) -> Iterator[UiServer]:
    """Serve the page in this process."""
    with closing(Feed(source)) as feed:
        running = UiServer(0, feed, render_page(cluster))
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()
    running.server_close()


def find_known(text: str) -> RunId:
    """Find a run by its id, or the one of the tests by its short id."""
    if (run_id := parse_run_id(text)) is not None:
        return run_id
    if text in ("923c", "923d"):
        return RunId(f"digits-20261123T070708-{text}")
    raise UnknownRunError(f"no run is called {text}")


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "-"): value for key, value in headers.items()}


def ask(
    url: str, method: str, name: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    """Send a request for something of the page; a name with `/` before it goes without the token."""
    address = urlsplit(url)
    path = name if name.startswith("/") else f"{address.path}{name}"
    with closing(HTTPConnection(address.netloc, timeout=HANG)) as connection:
        connection.request(method, path, body, _named(headers))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def press(url: str, name: str, run: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Send what a button sends; an empty header is left out."""
    usual = {"Origin": f"http://{urlsplit(url).netloc}", "Content_Type": "application/json", **headers}
    sent = json.dumps({"run": run}).encode() if body is None else body
    status, _, text = ask(url, "POST", name, sent, **{key: value for key, value in usual.items() if value})
    return status, text


class Events:
    """The events of an open stream."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer = answer
        self.last_id = ""

    def read(self, name: str) -> Any:
        """Read up to the next event of that name and give its data."""
        found = ""
        while line := self._answer.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "id":
                self.last_id = value
            elif key == "event":
                found = value
            elif key == "data" and found == name:
                return json.loads(value)
        raise AssertionError(f"no event {name}")

    def read_part(self, name: str, text: str) -> str:
        """Read until a part of the page holds a text, and give the part."""
        while True:
            part = self.read("part")
            if part["name"] == name and text in part["html"]:
                return str(part["html"])


@contextmanager
def stream(url: str, run: str, **headers: str) -> Iterator[Events]:
    """Open the stream of a run."""
    address = urlsplit(url)
    with closing(HTTPConnection(address.netloc, timeout=HANG)) as connection:
        connection.request("GET", f"{address.path}events?run={run}", headers=_named(headers))
        with connection.getresponse() as answer:
            assert answer.status == 200 and "event-stream" in answer.headers["Content-Type"], answer.read()
            yield Events(answer)
