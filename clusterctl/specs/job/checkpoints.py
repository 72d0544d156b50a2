"""`checkpoints` of a job: which files of the run the nodes keep for each other, so that a restart resumes from them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from clusterctl.errors import InvalidValueError, Issue
from clusterctl.specs import placeholders
from clusterctl.specs.fields import ScalarType, documented, one_of, whole_number_schema
from clusterctl.specs.values import SIZE_PATTERN, Size, parse_positive, parse_size, parse_text
from clusterctl.specs.yaml.tree import YamlMapping, find_scalar, quoted
from clusterctl.translation import to_translate

OUTPUT_DIR = "${output_dir}"
ALLOWED_PLACEHOLDERS = ("output_dir", "run_id")  # which mean the same in each attempt
MAX_PATH = 1000  # characters
ALL_NODES = 0  # of `copies`
_WILDCARDS = ("*", "?", "[")
_NOT_IN_MARKER = (*_WILDCARDS, "${")
MAX_MARKER = 200  # bytes


def parse_checkpoint_path(text: str) -> str:
    """Read the pattern of the checkpoints: an absolute path with wildcards in its last component only."""
    parse_text(text)
    if len(text) > MAX_PATH:
        raise InvalidValueError("CC-SPEC-013", "too-long", text=quoted(text[:40]), max_length=MAX_PATH)
    folder, name = posixpath.split(text)
    shown = quoted(text)
    if not text.startswith(("/", f"{OUTPUT_DIR}/")) or folder == "/":
        raise InvalidValueError("CC-SPEC-038", "relative", text=shown)
    if ".." in text.split("/"):
        raise InvalidValueError("CC-SPEC-038", "parent", text=shown)
    if not any(sign in name for sign in _WILDCARDS):
        raise InvalidValueError("CC-SPEC-038", "no-wildcard", text=shown)
    if any(sign in folder for sign in _WILDCARDS):
        raise InvalidValueError("CC-SPEC-038", "wildcard-in-folder", text=shown)
    if not placeholders.find_problems(text):
        parts = placeholders.parse_template(text)
        names = [part.name for part in parts if isinstance(part, placeholders.Placeholder)]
        if not set(names) <= set(ALLOWED_PLACEHOLDERS) or OUTPUT_DIR in text[1:] or "${" in name:
            raise InvalidValueError("CC-SPEC-038", "placeholder", text=shown)
    return text


def _parse_complete(text: str) -> str:
    parse_text(text)
    too_long = len(text.encode()) > MAX_MARKER
    if (
        too_long
        or text.startswith("/")
        or ".." in text.split("/")
        or any(sign in text for sign in _NOT_IN_MARKER)
    ):
        raise InvalidValueError("CC-SPEC-038", "complete", text=quoted(text))
    return posixpath.normpath(text)


def _parse_copies(text: str) -> int:
    return ALL_NODES if text == "all" else parse_positive(text)


def _parse_rate(text: str) -> Size:
    if not text.endswith("/s"):
        raise InvalidValueError("CC-SPEC-038", "rate", text=quoted(text))
    if not (rate := parse_size(text.removesuffix("/s"))):
        raise InvalidValueError("CC-SPEC-038", "rate", text=quoted(text))
    return rate


_TEXT = {"type": "string", "minLength": 1}
_COPIES = {"anyOf": [whole_number_schema(minimum=1), {"const": "all"}]}
_RATE = {"type": "string", "pattern": f"^({SIZE_PATTERN})/s$"}
PathPattern = Annotated[
    str, ScalarType(to_translate("a pattern"), parse_checkpoint_path, {**_TEXT, "maxLength": MAX_PATH})
]
MarkerFile = Annotated[str | None, ScalarType(to_translate("a path"), _parse_complete, _TEXT, nullable=True)]
Copies = Annotated[int, ScalarType(to_translate("a whole number, or all"), _parse_copies, _COPIES)]
Positive = Annotated[
    int, ScalarType(to_translate("a whole number"), parse_positive, whole_number_schema(minimum=1))
]
Rate = Annotated[
    Size | None, ScalarType(to_translate("a rate such as 1GB/s"), _parse_rate, _RATE, nullable=True)
]
Needs = Annotated[Literal["all", "own"], one_of("all", "own")]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Which files the nodes keep for each other, so that another node can resume from them."""

    path: PathPattern = field(
        metadata=documented(
            to_translate(
                "Where the script writes checkpoints, a file or a directory each: an absolute path with wildcards "
                "in its last part, such as `${output_dir}/step-*`."
            )
        )
    )
    complete: MarkerFile = field(
        default=None,
        metadata=documented(
            to_translate(
                "A file in each checkpoint that the script writes last, such as `.metadata`; without it a checkpoint "
                "is complete when its files no longer change."
            )
        ),
    )
    copies: Copies = field(
        default=2,
        metadata=documented(
            to_translate("How many nodes have each file, the one that wrote it included; or `all`.")
        ),
    )
    keep: Positive = field(
        default=2,
        metadata=documented(to_translate("Of how many checkpoints, the newest, the copies are kept.")),
    )
    rate: Rate = field(
        default=None,
        metadata=documented(
            to_translate("How fast each node may copy, such as `1GB/s`; default: as fast as it can.")
        ),
    )
    needs: Needs = field(
        default="all",
        metadata=documented(
            to_translate(
                "What a node needs to resume: `all` files of the checkpoint, or its `own`, where each rank reads "
                "only what it wrote."
            )
        ),
    )


def find_checkpoint_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with `checkpoints` and other keys together."""
    key, checkpoints = tree.get_key("checkpoints"), tree.get("checkpoints")
    if key is None or not isinstance(checkpoints, YamlMapping):
        return
    if not isinstance(tree.get("restart"), YamlMapping):
        yield Issue.of("CC-SPEC-038", "restart", key.location)
    needs, least = find_scalar(checkpoints, "needs"), tree.get_key("min_nodes")
    if needs and needs.text == "own" and least:
        yield Issue.of("CC-SPEC-038", "own-min-nodes", needs.location, place=least.location)
