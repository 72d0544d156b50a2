"""Whatever stands in a file, the answer is a value or a SpecError."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from damage import damaged, few, fewer, judge, noise
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.errors import SpecError
from clusterctl.specs.fields import keys_of
from clusterctl.specs.inventory.model import Inventory, InventoryFile, Node, Ssh
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job, Sync
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.yaml.reader import decode_source

ROOT = Path(__file__).parents[2]
INVENTORIES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "inventories").glob("*.yaml"))]
JOBS = [
    "name: a\nscript: train.py\nargs: [--lr, 1e-4, '${run_id}']\nenv: {A: b}\nsecrets: [T]\ngrace: 1h30m\n",
    "name: a\nmodule: b.c\nnodes: gpu[01-04]\nnproc_per_node: 2\nsync: {exclude: [data/]}\nargs:\n  - |\n    x\n",
]


def judge_inventory(text: str) -> None:
    """Read it; an error has a place inside the text and words for every issue."""
    try:
        assert isinstance(parse_inventory(text, "f"), Inventory)
    except SpecError as error:
        judge(error, text)


def judge_job(text: str, *overrides: tuple[str, str]) -> None:
    """The same for a job."""
    try:
        assert isinstance(parse_job(text, "f", overrides), Job)
    except SpecError as error:
        judge(error, text)


@few
@given(noise)
def test_any_text(text: str) -> None:
    """Noise is no file."""
    judge_inventory(text)
    judge_job(text)


@few
@given(damaged(INVENTORIES))
def test_damaged_inventories(text: str) -> None:
    """What remains is right, or wrong in a way that can be reported."""
    judge_inventory(text)


@few
@given(damaged(JOBS))
def test_damaged_jobs(text: str) -> None:
    """The same for jobs."""
    judge_job(text)


ODD = [
    "",
    " ",
    "~",
    "null",
    "true",
    "-1",
    "1e9",
    "9" * 400,
    "1_000",
    "0x10",
    "::1",
    "10.0.0.0/8",
    "all",
    "${",
    "$${",
]
ODD += [
    "gpu[1-999999999]",
    "gpu[1-9][1-9][1-9][1-9][1-9]",
    "0-99999999",
    "*" * 50,
    "~/",
    "../..",
    "-oProxyCommand=x",
]
ODD += [
    "u@h:22,x@y",
    "u@[::1]:2",
    "%h",
    "%",
    "1d1h",
    "a\nb",
    "\x00",
    "\ud800",
    "\r\n",
    "\t",
    "名" * 40,
    "a" * 300,
    "--",
    "[",
]
INVENTORY_KEYS = [*keys_of(InventoryFile), *keys_of(Node), *keys_of(Ssh)]
JOB_KEYS = [*keys_of(Job), *keys_of(Sync)]
WHAT = [{"script": "a.py"}, {"module": "a.b"}, {"command": ["a"]}, {}]
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False), st.sampled_from(ODD)
)


def trees(keys: Iterable[str]) -> st.SearchStrategy[Any]:
    """Give values of any kind, and known keys at any place."""
    words = st.sampled_from([*keys, *ODD])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=6)),
        max_leaves=14,
    )


def keyed(model: type[Any], keys: Iterable[str]) -> st.SearchStrategy[Any]:
    """Give some keys of a model with any values."""
    return st.dictionaries(st.sampled_from([*keys_of(model)]), trees(keys), max_size=5)


@fewer
@given(keyed(InventoryFile, INVENTORY_KEYS), st.lists(keyed(Node, INVENTORY_KEYS), max_size=3))
def test_any_values_of_an_inventory(top: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    """Right keys with values that no one would think of."""
    judge_inventory(json.dumps({"cluster": "c", "nodes": [{"host": "h", **node} for node in nodes], **top}))


@fewer
@given(keyed(Job, JOB_KEYS), st.sampled_from(WHAT))
def test_any_values_of_a_job(top: dict[str, Any], what: dict[str, Any]) -> None:
    """The same for jobs."""
    judge_job(json.dumps({"name": "n", **what, **top}))


KEYS = [
    "args",
    "env",
    "env.A",
    "sync.exclude",
    "nodes",
    "grace",
    "secrets",
    "",
    ".",
    "env.",
    "x.y.z",
    "env.\ud800",
]


@few
@given(st.lists(st.tuples(st.sampled_from(KEYS), noise), max_size=3))
def test_any_value_from_the_command_line(overrides: list[tuple[str, str]]) -> None:
    """The same for `--set`."""
    judge_job(JOBS[0], *overrides)


@few
@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """The same before there is a text."""
    try:
        judge_job(decode_source(data, "f"))
    except SpecError as error:
        assert error.issues[0].code == "CC-SPEC-002"
