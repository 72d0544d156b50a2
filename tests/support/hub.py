"""A stand-in for a hub of models: what its clients need of it, counted, and everything that can go wrong with it.

It answers as the Hugging Face Hub does (commits, lists, files that lead to another host), as ModelScope does, and sends
plain files. `python tests/support/hub.py '{"model.safetensors": 1000000}'` serves files of so many random bytes.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "a" * 40
LARGE = 10_000  # bytes from which a file is in Git LFS
PIECE = 1 << 16
PAGE = 100  # files on a page of a list


def git_hash(content: bytes) -> str:
    """Return git's name of a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class Repository:
    """One repository: its files at one commit, and what it is called."""

    files: Mapping[str, bytes]
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main", "master")
    gated: bool = False  # only with the token

    def rows(self) -> list[dict[str, Any]]:
        """Return the list as the hub sends it."""
        rows = []
        for path, content in sorted(self.files.items()):
            row: dict[str, Any] = {
                "type": "file",
                "path": path,
                "oid": git_hash(content),
                "size": len(content),
            }
            if len(content) >= LARGE:
                row["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
            rows.append(row)
        return rows


@dataclass
class Hub:
    """What the server has, and how it misbehaves; `count` has requests by kind, and `bytes` of files."""

    repositories: dict[str, Repository] = field(default_factory=dict)  # models/org/name
    plain: dict[str, bytes] = field(default_factory=dict)  # by path: /file.tar
    token: str = "hf_right"
    rate: float = 0.0  # bytes a second of all files together; 0: as fast as it goes
    limited: list[str] = field(default_factory=list)  # headers of so many answers 429 that come first
    failing: int = 0  # so many requests of files get a 503
    cut_after: int = 0  # bytes of an answer after which the connection is closed, once
    no_ranges: bool = False
    change_list: Callable[[list[dict[str, Any]]], Any] = lambda rows: rows
    change_content: Callable[[str, bytes], bytes] = lambda _, content: content
    gate: threading.Event | None = None  # large files end only once it is set
    count: Counter[str] = field(default_factory=Counter)
    tokens: list[tuple[str, str]] = field(default_factory=list)  # with which kinds of requests came
    url: str = ""
    host_of_files: str = (
        ""  # another name of the server, so that it is another host; empty: that of the request
    )
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(hub: Hub, host: str = "127.0.0.1", port: int = 0) -> Iterator[Hub]:
    """Serve as long as the context lasts."""

    class Handler(HubHandler):
        server_hub = hub

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    hub.url = f"http://{host}:{server.server_address[1]}"
    if host == "127.0.0.1":
        hub.host_of_files = f"localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        if hub.gate is not None:
            hub.gate.set()
        server.shutdown()
        server.server_close()


class HubHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server_hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a request."""
        hub, parts = self.server_hub, urlsplit(self.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        answers: tuple[tuple[str, str, Callable[..., None]], ...] = (
            ("commit", r"/api/(models|datasets)/([\w.-]+/[\w.-]+)(?:/revision/(.+))?$", self.send_commit),
            ("list", r"/api/(models|datasets)/([\w.-]+/[\w.-]+)/tree/([^/]+)$", self.send_list),
            ("resolve", r"/(?:(datasets)/)?([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)$", self.send_file),
            ("large", r"/cdn/([\w.-]+/[\w.-]+/[\w.-]+)/(.+)$", self.send_large),
            ("ms list", r"/api/v1/(models)/([\w.-]+/[\w.-]+)/repo/files$", self.send_ms_list),
            ("ms file", r"/api/v1/(models)/([\w.-]+/[\w.-]+)/repo$", self.send_ms_file),
            ("plain", r"(/.+)$", self.send_plain),
        )
        for kind, pattern, answer in answers:
            found = re.match(pattern, path)
            if found:
                hub.count[kind] += 1
                hub.tokens.append((kind, self.headers.get("Authorization", "")))
                if hub.limited:
                    name, _, value = hub.limited.pop(0).partition(": ")
                    self.refuse(429, {name: value} if name else {})
                    return
                answer(*found.groups(), query=query)
                return
        self.refuse(404)

    def find(self, kind: str, name: str, revision: str) -> Repository | None:
        """Return a repository, or refuse."""
        repository = self.server_hub.repositories.get(f"{kind}/{name}")
        right = f"Bearer {self.server_hub.token}"
        if repository is None:
            code = "RepoNotFound"
        elif repository.gated and self.headers.get("Authorization") != right:
            self.refuse(
                403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted"}
            )
            return None
        elif revision not in ("", repository.commit, *repository.revisions):
            code = "RevisionNotFound"
        else:
            return repository
        self.refuse(404, {"X-Error-Code": code, "X-Error-Message": code})
        return None

    def send_commit(self, kind: str, name: str, revision: str | None, query: Any) -> None:
        """Send what a revision is now."""
        repository = self.find(kind, name, revision or "")
        if repository is not None:
            siblings = [{"rfilename": path} for path in sorted(repository.files)]
            facts = {"id": name, "sha": repository.commit, "siblings": siblings}
            self.send_json({"sha": repository.commit} if "expand" in query else facts)

    def send_list(self, kind: str, name: str, revision: str, query: Any) -> None:
        """Send one page of the list."""
        repository = self.find(kind, name, revision)
        if repository is not None:
            rows = self.server_hub.change_list(repository.rows())
            begin = int(query.get("cursor", ["0"])[0])
            headers = {}
            if isinstance(rows, list) and len(rows) > begin + PAGE:
                url = f"https://elsewhere.example/api/{kind}/{name}/tree/{revision}"
                headers["Link"] = f'<{url}?recursive=true&cursor={begin + PAGE}>; rel="next"'
            self.send_json(rows[begin : begin + PAGE] if isinstance(rows, list) else rows, headers)

    def send_file(self, kind: str | None, name: str, revision: str, path: str, query: Any) -> None:  # noqa: ARG002 - as others
        """Send a small file, or lead to the other host that has a large one."""
        repository = self.find(kind or "models", name, revision)
        if repository is None:
            return
        content = repository.files.get(path)
        if content is None:
            self.refuse(404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{git_hash(content)}"'}
        if len(content) < LARGE:
            self.send_content(path, content, headers)
            return
        headers["X-Linked-Etag"], headers["X-Linked-Size"] = f'"{sha256(content)}"', str(len(content))
        host = self.server_hub.host_of_files or self.headers.get("Host", "")
        headers["Location"] = f"http://{host}/cdn/{kind or 'models'}/{name}/{path}?signature=secret"
        self.refuse(302, headers)

    def send_large(self, name: str, path: str, query: Any) -> None:  # noqa: ARG002 - as others
        """Send a large file."""
        repository = self.server_hub.repositories[name]
        content = repository.files[path]
        # for clients that see no other host and follow: their library wants the commit
        headers = {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": repository.commit}
        self.send_content(path, content, headers)

    def send_ms_list(self, kind: str, name: str, query: Any) -> None:
        """Send ModelScope's list."""
        repository = self.find(kind, name, query["Revision"][0])
        if repository is not None:
            rows = [
                {"Type": "blob", "Path": path, "Size": len(content), "Sha256": sha256(content)}
                for path, content in repository.files.items()
            ]
            self.send_json({"Code": 200, "Data": {"Files": self.server_hub.change_list(rows)}})

    def send_ms_file(self, kind: str, name: str, query: Any) -> None:
        """Send a file of ModelScope."""
        repository = self.find(kind, name, query["Revision"][0])
        if repository is not None:
            path = query["FilePath"][0]
            self.send_content(path, repository.files[path], {})

    def send_plain(self, path: str, query: Any) -> None:  # noqa: ARG002 - as others
        """Send a file by its path."""
        content = self.server_hub.plain.get(path)
        if content is None:
            self.refuse(404)
        else:
            self.send_content(path, content, {"ETag": f'"{sha256(content)}"'})

    def send_json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send JSON."""
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_headers({"Content-Type": "application/json", **(headers or {})}, len(text))
        self.write(text)

    def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer without a body."""
        self.send_response(status)
        self.send_headers(headers or {}, 0)

    def send_headers(self, headers: Mapping[str, str], length: int) -> None:
        """Send all headers."""
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def write(self, data: bytes) -> None:
        """Send bytes, unless only the headers were requested."""
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_content(self, path: str, content: bytes, headers: dict[str, str]) -> None:
        """Send a file, or the part of it that was requested, as fast as is allowed."""
        hub = self.server_hub
        if hub.failing:
            hub.failing -= 1
            self.refuse(503)
            return
        content = hub.change_content(path, content)
        wanted = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        begin, end = 0, len(content)
        if wanted and not hub.no_ranges:
            begin, end = int(wanted[1]), min(end, int(wanted[2]) + 1) if wanted[2] else end
            self.send_response(206)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        else:
            self.send_response(200)
        self.send_headers({"Accept-Ranges": "bytes", **headers}, end - begin)
        if self.command != "HEAD":
            self.send_slowly(content[begin:end], is_end=end == len(content) >= LARGE)

    def send_slowly(self, content: bytes, *, is_end: bool) -> None:
        """Send the bytes of a file."""
        hub = self.server_hub
        cut, hub.cut_after = hub.cut_after, 0
        for begin in range(0, len(content), PIECE):
            if hub.gate is not None and is_end and begin + PIECE >= len(content):
                hub.gate.wait()
            piece = content[begin : begin + PIECE]
            with hub.lock:
                if hub.rate:
                    time.sleep(len(piece) / hub.rate)
                hub.count["bytes"] += len(piece)
            self.wfile.write(piece)
            if cut and begin + PIECE >= cut:
                self.close_connection = True
                return


def main() -> None:
    """Serve files of so many random bytes each as the model `org/name`, by commands: `count`, `rate N`."""
    sizes = json.loads(sys.argv[1])
    files = {name: random.Random(name).randbytes(size) for name, size in sizes.items()}
    hub = Hub({"models/org/name": Repository(files)})
    with serving(hub, "0.0.0.0"):
        print(hub.url, flush=True)
        for line in sys.stdin:
            if line.startswith("rate"):
                hub.rate = float(line.split()[1])
            print(json.dumps(hub.count), flush=True)


if __name__ == "__main__":
    main()
