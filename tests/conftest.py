"""What tests of several folders share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Webhook:
    """A listener on loopback of the launching machine: its URL, and the bodies that came."""

    url: str = ""
    got: list[Any] = field(default_factory=list)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Take messages as a webhook does, from the start of the test to its end."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/tok-12345678"
    yield hook
    server.shutdown()
    server.server_close()
