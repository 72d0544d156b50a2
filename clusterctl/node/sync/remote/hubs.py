"""Which files a source has: a repository of the Hugging Face Hub or of ModelScope at one revision, or a single URL.

A hub is asked for the commit of a revision, once, and for the list of a commit that is not remembered here. What it
answers is read with bounds; names are checked by the parser of manifests.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from ....protocol.manifest import SHA
from ....protocol.untrusted import Untrusted
from ...runtime.stream import VerbError
from .http import Http, Refusal

MAX_PAGE = 8 << 20  # bytes
MAX_FILES = 100_000
MAX_PAGES = 1000
MAX_SIZE = 1 << 50  # bytes of a file
MAX_NAME = 4096
TRUNCATED = 3000  # entries beyond which ModelScope lists no more, without a word
COMMIT = re.compile(r"[0-9a-f]{40}\Z")

HF_ENDPOINT, MS_ENDPOINT = "https://huggingface.co", "https://www.modelscope.cn"


class RemoteFile(NamedTuple):
    """A file of a source; `git` is the SHA-1 that git has for it. A hash is empty where it is not known or not used."""

    path: str
    size: int  # -1: unknown
    sha256: str
    git: str


class Source:
    """Where files come from: `key` names the source and its revision for what is remembered of it."""

    kind = ""
    endpoint = ""
    fixed = False  # the revision cannot change: it is a commit
    moves = False  # what `resolve` returns may be other files by now

    def __init__(self, http: Http, path: str, revision: str) -> None:
        self.http, self.path, self.revision = http, path, revision

    @property
    def name(self) -> str:
        """Name the source as users write it."""
        return f"{self.kind}://{self.path}" + (f"@{self.revision}" if self.revision else "")

    def resolve(self) -> str:
        """Return the commit of the revision, by one request."""
        raise NotImplementedError

    def list_files(self, commit: str) -> List[RemoteFile]:
        """Return all files of a commit."""
        raise NotImplementedError

    def find_url(self, file: RemoteFile, commit: str) -> str:
        """Return the URL of a file."""
        raise NotImplementedError

    def explain(self, refusal: Refusal) -> VerbError:
        """Return the error that a refusal of the server is for the user."""
        status, text = refusal.status, f"{self.name}: {refusal.host} refuses it ({refusal})"
        if status == 429:
            return VerbError("CC-STAGE-013", text)
        if status in (401, 403):
            return VerbError("CC-STAGE-011", text)
        return VerbError("CC-STAGE-012" if status in (404, 410) else "CC-STAGE-014", text)


class HuggingFace(Source):
    """A repository of the Hugging Face Hub, or of a mirror that answers like it."""

    kind = "hf"

    def __init__(self, http: Http, path: str, revision: str, endpoint: str) -> None:
        super().__init__(http, path, revision)
        self.endpoint = endpoint
        http.token_host = urlsplit(endpoint).netloc
        repo_type, _, rest = path.partition("/")
        self.repo_type = repo_type if repo_type in ("datasets", "spaces") and rest else "models"
        self.repo = path if self.repo_type == "models" else rest
        self.fixed = bool(COMMIT.match(revision))
        prefix = "" if self.repo_type == "models" else f"{self.repo_type}/"
        self._files = f"{endpoint}/{prefix}{quote(self.repo)}/resolve"
        self._api = f"{endpoint}/api/{self.repo_type}/{quote(self.repo)}"

    def resolve(self) -> str:
        """Return the commit of the revision, by one request."""
        if self.fixed:
            return self.revision
        url = f"{self._api}/revision/{quote(self.revision or 'main', safe='')}?expand=sha"
        commit = Untrusted(self.http.get_json(url, MAX_PAGE)[0]).text("sha", 64)
        if not COMMIT.match(commit):
            raise VerbError("CC-STAGE-015", f"{self.name}: the hub does not report its commit")
        return commit

    def list_files(self, commit: str) -> List[RemoteFile]:
        """Return all files of a commit, page by page."""
        files: List[RemoteFile] = []
        query = {"recursive": "true"}
        for _ in range(MAX_PAGES):
            page, headers = self.http.get_json(f"{self._api}/tree/{commit}?{urlencode(query)}", MAX_PAGE)
            files += self._parse_page(page)
            cursor = find_cursor(headers.get("Link", ""))
            if len(files) > MAX_FILES or cursor is None:
                break
            query["cursor"] = cursor
        else:
            raise VerbError("CC-STAGE-015", f"{self.name}: the hub's list does not end")
        return check_count(files, self.name)

    def _parse_page(self, page: Any) -> Iterator[RemoteFile]:
        if not isinstance(page, list):
            raise VerbError("CC-STAGE-015", f"{self.name}: the hub's list cannot be read")
        for row in map(Untrusted, page):
            if row.text("type", 20) != "file":
                continue
            lfs = row.record("lfs")
            path, git = row.text("path", MAX_NAME), row.text("oid", 64)
            size = (lfs if lfs else row).integer("size", 0, MAX_SIZE)
            sha256 = lfs.text("oid", 80).replace("sha256:", "")
            if size is None or not (SHA.match(sha256) if lfs else COMMIT.match(git)):
                raise VerbError(
                    "CC-STAGE-015", f"{self.name}: the hub lists {path!r} without a size or a hash"
                )
            yield RemoteFile(path, size, sha256, "" if sha256 else git)

    def find_url(self, file: RemoteFile, commit: str) -> str:
        """Return the URL of a file."""
        return f"{self._files}/{commit}/{quote(file.path, errors='replace')}"


class ModelScope(Source):
    """A model or a dataset of ModelScope; its revisions are names, which may move."""

    kind = "ms"

    def __init__(self, http: Http, path: str, revision: str, endpoint: str) -> None:
        super().__init__(http, path, revision)
        self.endpoint = endpoint
        http.token_host = urlsplit(endpoint).netloc
        self.fixed = bool(COMMIT.match(revision))
        self.moves = not self.fixed
        is_dataset = path.startswith("datasets/")
        self.repo_type, self.repo = ("datasets" if is_dataset else "models"), path[9 * is_dataset :]
        self._api = f"{endpoint}/api/v1/{self.repo_type}/{quote(self.repo)}/repo"

    def resolve(self) -> str:
        """Return the name of the revision."""
        return self.revision or "master"

    def list_files(self, commit: str) -> List[RemoteFile]:
        """Return all files of a revision."""
        part = "tree" if self.repo_type == "datasets" else "files"
        query = urlencode({"Revision": commit, "Recursive": "True"})
        answer = Untrusted(self.http.get_json(f"{self._api}/{part}?{query}", MAX_PAGE)[0])
        rows = answer.record("Data").records("Files", MAX_FILES + 1)
        if not answer.record("Data").is_list("Files") or len(rows) == TRUNCATED:
            raise VerbError("CC-STAGE-015", f"{self.name}: the hub does not list all its files")
        return check_count([self._parse(row) for row in rows if row.text("Type", 20) != "tree"], self.name)

    def _parse(self, row: Untrusted) -> RemoteFile:
        path, size, sha256 = (
            row.text("Path", MAX_NAME),
            row.integer("Size", 0, MAX_SIZE),
            row.text("Sha256", 80),
        )
        if size is None or not SHA.match(sha256):
            raise VerbError("CC-STAGE-015", f"{self.name}: the hub lists {path!r} without a size or a hash")
        return RemoteFile(path, size, sha256, "")

    def find_url(self, file: RemoteFile, commit: str) -> str:
        """Return the URL of a file."""
        query = urlencode({"Revision": commit, "FilePath": file.path}, errors="replace")
        return f"{self._api}?{query}"


class SingleFile(Source):
    """The file of a URL; its revision is what the server sends that changes with the content."""

    kind = "url"

    def __init__(self, http: Http, url: str, name: str, sha256: str) -> None:
        super().__init__(http, url, "")
        self._name, self._sha256 = name, sha256
        self.endpoint = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        self.fixed = bool(sha256)
        self._size = -1

    @property
    def name(self) -> str:
        """Name the URL, without what may be secret in it."""
        return self.path.partition("?")[0]

    def resolve(self) -> str:
        """Return what changes with the content: its SHA-256, or what the server sends."""
        return self._sha256 if self.fixed else self._request_stamp()

    def _request_stamp(self) -> str:
        def request() -> str:
            body = self.http.get(self.path, 0, 1)
            body.response.close()
            self._size = -1 if body.total is None else body.total
            return f"{body.stamp} {self._size}" if body.stamp else ""

        return self.http.repeat(request)

    def list_files(self, commit: str) -> List[RemoteFile]:  # noqa: ARG002 - the signature of a source
        """Return the one file."""
        if self._size < 0 and self.fixed:
            self._request_stamp()
        return [RemoteFile(self._name, self._size, self._sha256, "")]

    def find_url(self, file: RemoteFile, commit: str) -> str:  # noqa: ARG002 - the signature of a source
        """Return the URL of the file."""
        return self.path


def find_cursor(link: str) -> Optional[str]:
    """Return where the next page of a list begins; its URL is ours, whatever host a mirror names."""
    match = re.search(r'<([^>]{1,4096})>; ?rel="next"', link[:8192])
    cursors = parse_qs(urlsplit(match[1]).query).get("cursor", []) if match else []
    return cursors[0] if cursors else None


def check_count(files: List[RemoteFile], name: str) -> List[RemoteFile]:
    """Refuse a source with more files than can be named, or none."""
    if not files or len(files) > MAX_FILES:
        count = f"more than {MAX_FILES}" if files else "no"
        raise VerbError("CC-STAGE-015", f"{name}: the hub lists {count} files")
    return files


def open_source(
    http: Http, kind: str, path: str, revision: str, variables: Mapping[str, str], single: Tuple[str, str]
) -> Source:
    """Return a source by its kind; `single` is the name and the SHA-256 of a single file."""
    if kind == "url":
        return SingleFile(http, path, *single)
    if kind == "ms":
        return ModelScope(http, path, revision, find_endpoint(kind, variables))
    return HuggingFace(http, path, revision, find_endpoint(kind, variables))


def find_endpoint(kind: str, variables: Mapping[str, str]) -> str:
    """Return the address of a hub, which variables of its library may change."""
    if kind == "hf":
        text = variables.get("HF_ENDPOINT", "") or HF_ENDPOINT
    else:
        text = (
            variables.get("MODELSCOPE_ENDPOINT", "") or variables.get("MODELSCOPE_DOMAIN", "") or MS_ENDPOINT
        )
    text = text if "://" in text else f"https://{text}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise VerbError("CC-STAGE-014", f"{text} is not the address of a hub")
    return text.rstrip("/")
