"""Requests to a server outside of the cluster: bounded, repeated after failures, no faster than the server allows.

The token goes only to the host that it is for: not to the hosts of files, to which hubs redirect.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from contextlib import closing
from email.message import Message
from http.client import HTTPException, HTTPResponse
from queue import Empty, SimpleQueue
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple, TypeVar, Union
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener, getproxies

from ....protocol.untrusted import MalformedError, parse_json
from ...runtime.stream import VerbError

CONNECT_LIMIT = 5.0  # seconds
SILENCE_LIMIT = 30.0  # seconds without a byte
HEADERS_LIMIT = 60.0  # seconds from a request to the end of the headers, with all redirects
MIN_RATE = 5000  # bytes a second, beyond a minute
GRACE = 60.0  # seconds
ATTEMPTS = 5  # without anything new
MAX_PAUSE = 16.0  # seconds between two attempts
MAX_RATE_WAIT = 900.0  # seconds that a server that limits the rate is waited for
DEFAULT_RATE_WAIT = 60.0  # seconds where it does not report how long
MAX_REDIRECTS = 10
CHUNK = 1 << 18
AGAIN = frozenset({408, 500, 502, 503, 504})
MAX_VALUES = 400_000  # in one answer
MAX_REASON = 200  # characters of what a server reports
T = TypeVar("T")
_RESET = re.compile(r"\bt=(\d{1,6})\b")


class Refusal(Exception):
    """A server refuses; `reason` is its own word for it, `detail` its sentence."""

    def __init__(self, status: int, url: str, reason: str, detail: str) -> None:
        super().__init__(f"HTTP {status}" + (f": {detail}" if detail else ""))
        self.status, self.host, self.reason = status, urlsplit(url).netloc.rpartition("@")[2], reason


class Body(NamedTuple):
    """What comes: where it begins, the size of the whole file (None: unknown), and where it really came from."""

    response: HTTPResponse
    begin: int
    end: Optional[int]  # None: to the end of the file
    total: Optional[int]
    url: str
    stamp: str  # changes with the content, if the server sends one


class Stopped(Exception):
    """The download was stopped."""


class Redirects(HTTPRedirectHandler):
    """Follows redirects: never from https to http, and with the token only on the same host."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:  # noqa: ARG002 - urllib's
        """Follow one redirect; its body is not read, it may have no end."""
        fp.close()
        target = urljoin(req.full_url, headers.get("Location", ""))
        before, after = urlsplit(req.full_url), urlsplit(target)
        hops = getattr(req, "hops", 0) + 1
        allowed = ("https",) if before.scheme == "https" else ("https", "http")
        if not headers.get("Location") or after.scheme not in allowed or hops > MAX_REDIRECTS:
            raise URLError("redirected to where nothing can be fetched")
        again = Request(target, headers=req.headers)
        again.hops = hops  # type: ignore[attr-defined]  # the number travels with the request
        if (before.scheme, before.netloc) == (after.scheme, after.netloc):
            again.unredirected_hdrs.update(req.unredirected_hdrs)
            again.unredirected_hdrs.pop("Host", None)
        return self.parent.open(again, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class Http:
    """Makes requests from many threads; `on_wait` receives why nothing comes for a while."""

    def __init__(
        self, variables: Mapping[str, str], token: str = "", on_wait: Callable[[str], None] = lambda _: None
    ) -> None:
        self.token_host = ""
        proxies = _find_proxies(variables)
        handlers = [ProxyHandler(proxies)] if proxies else []
        self._opener = build_opener(*handlers, HTTPSHandler(context=_make_context(variables)), Redirects())
        self._token, self._on_wait = token, on_wait
        self._paused_until = 0.0  # by the monotonic clock; for all threads
        self.stopped = threading.Event()

    def get_json(self, url: str, most: int) -> Tuple[Any, Message]:
        """Return the JSON at a URL of the hub, of at most so many bytes, and the headers."""

        def read() -> Tuple[Any, Message]:
            response = self._open(url, {"Accept": "application/json"})
            text = b"".join(self._read(response, most + 1))
            return parse_json(text, most, MAX_VALUES), response.headers

        try:
            return self.repeat(read)
        except MalformedError as error:
            raise VerbError("CC-STAGE-015", f"{url} does not send what it should: {error}") from None

    def get(self, url: str, begin: int, end: Optional[int], stamp: str = "") -> Body:
        """Begin to read a file from `begin` to `end`; a server that cannot do that sends it from its beginning."""
        headers = {"Range": f"bytes={begin}-{'' if end is None else end - 1}"}
        if stamp:
            headers["If-Range"] = stamp
        response = self._open(url, headers)
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() and len(length) < 19 else None
        if response.status == 206:
            range_sent = response.headers.get("Content-Range", "")
            match = re.match(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)\Z", range_sent)
            if match is None or int(match[1]) != begin:
                response.close()
                raise VerbError("CC-STAGE-015", "the server sends another part of a file than was requested")
            total = int(match[2]) if match[2].isdigit() else None
        else:
            begin, end = 0, None
        etag = response.headers.get("ETag", "")
        stamp = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
        return Body(response, begin, end, total, response.geturl(), stamp[:MAX_REASON])

    def read(self, body: Body) -> Iterator[bytes]:
        """Yield the pieces of a file as they come."""
        return self._read(body.response, None if body.end is None else body.end - body.begin)

    def repeat(self, action: Callable[[], T]) -> T:
        """Do what may fail because of the network or the server, again if it does."""
        failures = 0
        while True:
            self._pause()
            try:
                return action()
            except HTTPError as error:
                with closing(error):
                    failures += 1
                    if error.code == 429 and self._wait_for_rate(error):
                        continue
                    if error.code not in AGAIN or failures >= ATTEMPTS:
                        raise _read_refusal(error) from None
            except (URLError, HTTPException, OSError) as error:
                if getattr(error, "filename", None) is not None:
                    raise  # of the disk here
                failures += 1
                if failures >= ATTEMPTS or _is_final(error):
                    raise describe_network_error(error) from error
            self._sleep(min(MAX_PAUSE, 0.5 * 2**failures))

    def _open(self, url: str, headers: Dict[str, str]) -> HTTPResponse:
        request = Request(url, headers={"User-Agent": "clusterctl", "Accept-Encoding": "identity", **headers})
        if self._token and urlsplit(url).netloc == self.token_host:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        opened: SimpleQueue[Union[HTTPResponse, BaseException]] = SimpleQueue()
        threading.Thread(target=self._send, args=(request, opened), daemon=True).start()
        try:
            response = opened.get(timeout=HEADERS_LIMIT)
        except Empty:
            raise TimeoutError("its headers do not end") from None
        if isinstance(response, BaseException):
            raise response
        encoding = response.headers.get("Content-Encoding", "identity").lower()[:MAX_REASON]
        if encoding != "identity":
            response.close()
            raise VerbError("CC-STAGE-015", f"the server sends a file only with Content-Encoding: {encoding}")
        return response

    def _send(self, request: Request, opened: SimpleQueue[Union[HTTPResponse, BaseException]]) -> None:
        """Send a request and receive the headers of its answer, which may come a byte at a time."""
        try:
            opened.put(self._opener.open(request, timeout=SILENCE_LIMIT))
        except BaseException as error:  # the thread that waits raises it
            opened.put(error)

    def _read(self, response: HTTPResponse, most: Optional[int]) -> Iterator[bytes]:
        """Yield what comes, at most so many bytes; OSError if it comes too slowly."""
        count, began = 0, time.monotonic()
        with closing(response):
            while most is None or count < most:
                if self.stopped.is_set():
                    raise Stopped
                piece = response.read1(CHUNK if most is None else min(CHUNK, most - count))
                if not piece:
                    return
                count += len(piece)
                if time.monotonic() - began > GRACE + count / MIN_RATE:
                    raise TimeoutError("it sends too slowly")
                yield piece

    def _wait_for_rate(self, error: HTTPError) -> bool:
        """Delay all requests for as long as the server wants; return False if that is too long."""
        seconds = read_rate_wait(error.headers)
        if seconds > MAX_RATE_WAIT:
            return False
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)
        self._on_wait(f"{urlsplit(error.url).netloc} limits the rate: it continues in {seconds:.0f} s")
        return True

    def _pause(self) -> None:
        while (left := self._paused_until - time.monotonic()) > 0:
            self._sleep(left)
        if self.stopped.is_set():
            raise Stopped

    def _sleep(self, seconds: float) -> None:
        if self.stopped.wait(seconds):
            raise Stopped


def read_rate_wait(headers: Any) -> float:
    """Return for how many seconds a server that limits the rate does not want to be asked."""
    after = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,6}", after):
        return float(after) + 1
    reset = _RESET.search(headers.get("RateLimit", "")[:MAX_REASON])
    return float(reset[1]) + 1 if reset else DEFAULT_RATE_WAIT


def describe_network_error(error: BaseException) -> VerbError:
    """Return the error of a server that cannot be reached."""
    reason: Any = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return VerbError("CC-STAGE-014", f"the server cannot be reached: {text[:MAX_REASON]}")


def find_connect_problem(url: str, variables: Mapping[str, str]) -> str:
    """Return why no connection to a server, or to the proxy before it, can be made; empty if one can."""
    scheme = urlsplit(url).scheme
    proxy = {**getproxies(), **_find_proxies(variables)}.get(scheme, "")
    target = (proxy if "://" in proxy else f"http://{proxy}") if proxy else url
    parts = urlsplit(target)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_LIMIT).close()
    except OSError as error:
        return f"{parts.hostname}:{port}: {error.strerror or error}"
    return ""


def _is_final(error: BaseException) -> bool:
    """Return whether another attempt would fail as well: a certificate that is not valid, a name that is unknown."""
    reason = getattr(error, "reason", error)
    return isinstance(reason, (ssl.SSLCertVerificationError, socket.gaierror, str))


def _read_refusal(error: HTTPError) -> Refusal:
    word = error.headers.get("X-Error-Code", "")[:MAX_REASON]
    detail = error.headers.get("X-Error-Message", "")[:MAX_REASON]
    return Refusal(error.code, error.url or "", word, " ".join(detail.split()))


def _find_proxies(variables: Mapping[str, str]) -> Dict[str, str]:
    """Return the proxies that the job's variables name, by scheme; those of the node itself are used else."""
    found = {}
    for scheme in ("http", "https"):
        for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper()):
            if variables.get(name):
                found[scheme] = variables[name]
    return found


def _make_context(variables: Mapping[str, str]) -> ssl.SSLContext:
    """Return how certificates are checked: by the job's own list, the system's, or `certifi` where there is none."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if variables.get(name):
            return ssl.create_default_context(cafile=variables[name])
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"] and not ssl.get_default_verify_paths().capath:
        try:
            from importlib import import_module

            context.load_verify_locations(import_module("certifi").where())
        except ImportError:
            pass
    return context
