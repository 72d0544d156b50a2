"""`stage` of a job: models and data that every node gets before the run, and the forms that a source may have.

| `from`                  | who has it                                   |
|-------------------------|----------------------------------------------|
| `./corpus`, `~/corpus`  | this machine; relative to the job file       |
| `gpu01:/data/imagenet`  | a node                                       |
| `hf://org/model@rev`    | the Hugging Face Hub                         |
| `ms://org/model@rev`    | ModelScope                                   |
| `https://host/file.tar` | a web server; `http://` only with `sha256`   |
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from clusterctl.errors import InvalidValueError, Issue
from clusterctl.specs.fields import ScalarType, documented, one_of
from clusterctl.specs.values import is_node_name, parse_text
from clusterctl.specs.yaml.tree import YamlList, YamlMapping, find_scalar, quoted
from clusterctl.translation import to_translate

SourceKind = Literal["here", "node", "hf", "ms", "url"]
HUBS: tuple[SourceKind, ...] = ("hf", "ms")
SCHEMES = (*HUBS, "https", "http")
STAGE_DIR = "${stage_dir}"
MAX_SOURCE = 500  # characters
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"
_REPOSITORY = re.compile(rf"((?:datasets|spaces)/)?{_NAME}(?:/{_NAME})?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,199}")
_URL = re.compile(
    r"https?://[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?/[\x21-\x7e]+|https?://\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?/[\x21-\x7e]+"
)
_PORT = re.compile(r"https?://[^/]*:([0-9]{1,5})/")
MAX_PORT = 65535
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True)
class StageSource:
    """A source: `node` is the node that has it, `path` a path there or here, a repository, or a URL."""

    kind: SourceKind
    path: str
    node: str = ""
    revision: str = ""

    @property
    def name(self) -> str:
        """Return the name of what is there."""
        path = re.split("[?#]", self.path)[0] if self.kind == "url" else self.path
        return posixpath.basename(path.rstrip("/"))


def parse_stage_source(text: str) -> StageSource:
    """Read a `from`; raises InvalidValueError."""
    parse_text(text)
    if len(text) > MAX_SOURCE:
        raise InvalidValueError("CC-SPEC-013", "too-long", text=quoted(text[:40]), max_length=MAX_SOURCE)
    if scheme := _SCHEME.match(text):
        return _parse_remote(scheme[1], text)
    node, colon, path = text.partition(":")
    if not colon or "/" in node or node.startswith((".", "~")):
        source = StageSource("here", text)
    else:
        source = StageSource("node", path, node)
        if node in SCHEMES and path:  # a typing error: no cluster names a node so
            fixed = quoted(f"{node}://{path.lstrip('/')}")
            raise InvalidValueError("CC-SPEC-037", "slashes", text=quoted(text), fixed=fixed)
        if not is_node_name(node) or not path:
            raise InvalidValueError("CC-SPEC-037", "node", text=quoted(text))
    if source.name in ("", ".", "..", "~"):
        raise InvalidValueError("CC-SPEC-037", "no-name", text=quoted(text))
    return source


def _parse_remote(scheme: str, text: str) -> StageSource:
    rest = text[len(scheme) + 3 :]
    if scheme in HUBS:
        repository, at, revision = rest.partition("@")
        if not _REPOSITORY.fullmatch(repository) or (
            at and (not _REVISION.fullmatch(revision) or ".." in revision)
        ):
            raise InvalidValueError("CC-SPEC-037", "repository", text=quoted(text), scheme=scheme)
        return StageSource("hf" if scheme == "hf" else "ms", repository, revision=revision)
    if scheme not in SCHEMES:
        raise InvalidValueError("CC-SPEC-037", "scheme", text=quoted(f"{scheme}://"))
    source = StageSource("url", text)
    port = _PORT.match(text)
    if not _URL.fullmatch(text) or source.name in ("", ".", "..") or (port and int(port[1]) > MAX_PORT):
        raise InvalidValueError("CC-SPEC-037", "url", text=quoted(text))
    return source


def _check_source(text: str) -> str:
    parse_stage_source(text)
    return text


def _parse_target(text: str) -> str:
    parse_text(text)
    rest = text.removeprefix(STAGE_DIR)
    if "${" in rest or (rest not in (text, "") and not rest.startswith("/")):
        raise InvalidValueError("CC-SPEC-037", "target-placeholder", text=quoted(text))
    if ".." in text.split("/"):
        raise InvalidValueError("CC-SPEC-037", "target-parent", text=quoted(text))
    return text


def _parse_sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        raise InvalidValueError("CC-SPEC-037", "sha256", text=quoted(text[:80]))
    return text.lower()


_TEXT = {"type": "string", "minLength": 1}
SourceText = Annotated[
    str, ScalarType(to_translate("a source"), _check_source, {**_TEXT, "maxLength": MAX_SOURCE})
]
TargetText = Annotated[str | None, ScalarType(to_translate("a path"), _parse_target, _TEXT, nullable=True)]
Sha256 = Annotated[
    str | None,
    ScalarType(
        to_translate("a SHA-256"),
        _parse_sha256,
        {"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"},
        nullable=True,
    ),
]
Layout = Annotated[Literal["cache", "directory"], one_of("cache", "directory")]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A model or data that all nodes have before the job starts, in the time of one copy."""

    source: SourceText = field(
        metadata=documented(
            to_translate(
                "What is copied: a path of this machine, `NODE:PATH`, `hf://ORG/NAME@REVISION`, "
                "`ms://ORG/NAME@REVISION` or `https://...`."
            ),
            key="from",
        )
    )
    to: TargetText = field(
        default=None,
        metadata=documented(
            to_translate(
                "Where it is on every node; with a `/` at the end the directory that it goes into. Default: "
                "`${stage_dir}/`, for `hf://` and `ms://` the cache of their library."
            )
        ),
    )
    layout: Layout = field(
        default="cache",
        metadata=documented(
            to_translate("For `hf://` and `ms://`: as in the library's cache, or plain files in a directory.")
        ),
    )
    sha256: Sha256 = field(
        default=None,
        metadata=documented(to_translate("For `https://`: the SHA-256 that the file must have.")),
    )

    @property
    def origin(self) -> StageSource:
        """Return the source, parsed."""
        return parse_stage_source(self.source)

    @property
    def label(self) -> str:
        """Return the source for screens and records: what follows the `?` of a URL may be secret."""
        return self.source.partition("?")[0] if self.origin.kind == "url" else self.source

    @property
    def in_cache(self) -> bool:
        """Return whether it goes into the cache of a hub's library; `to` is that cache, if it is given."""
        return self.origin.kind in HUBS and self.layout == "cache"

    @property
    def folder_and_name(self) -> tuple[str, str]:
        """Return the directory that it goes into, and its name there."""
        return _split_target(self.origin, self.to)


def _split_target(origin: StageSource, to: str | None) -> tuple[str, str]:
    """Return directory and name: unlike with `cp` the same whether it is there already or not."""
    target = to or f"{STAGE_DIR}/"
    if target.endswith("/") or target in (STAGE_DIR, "~"):
        return target, origin.name
    return posixpath.dirname(target) or "~", posixpath.basename(target)


def find_stage_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with keys of `stage` together."""
    entries = tree.get("stage")
    targets: set[tuple[str, ...]] = set()
    for entry in entries.items if isinstance(entries, YamlList) else ():
        source, to, layout = (find_scalar(entry, key) for key in ("from", "to", "layout"))
        if not isinstance(entry, YamlMapping) or source is None:
            continue
        try:
            origin = parse_stage_source(source.text or "")
        except InvalidValueError:
            continue  # reported as that
        yield from _key_issues(entry, origin)
        target: tuple[str, ...] = _split_target(origin, to.text if to else None)
        if origin.kind in HUBS and (layout is None or layout.text != "directory"):  # many share a cache
            target = (to.text or "" if to else "", origin.path, origin.revision)
        if target in targets:
            yield Issue.of("CC-SPEC-037", "same-place", source.location, text=quoted(posixpath.join(*target)))
        targets.add(target)


def _key_issues(entry: YamlMapping, origin: StageSource) -> Iterator[Issue]:
    layout, sha256 = entry.get_key("layout"), entry.get_key("sha256")
    if layout and origin.kind not in HUBS:
        yield Issue.of("CC-SPEC-037", "layout", layout.location)
    if sha256 and origin.kind != "url":
        yield Issue.of("CC-SPEC-037", "not-url", sha256.location)
    if origin.path.startswith("http:") and not sha256:
        yield Issue.of("CC-SPEC-037", "plain-http", entry.location)
