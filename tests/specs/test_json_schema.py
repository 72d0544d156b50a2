"""The schemas that editors use say the same as the parsers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from structural import breaches

from clusterctl.errors import SpecError
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.json_schema import render_schemas

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "clusterctl" / "specs" / "schemas"


def schema_of(kind: str) -> dict[str, Any]:
    """Load a schema as it is checked in."""
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return loaded


def held_against(kind: str, text: str) -> list[str]:
    """Load a text as an editor does, and hold it against the schema."""
    schema = schema_of(kind)
    return list(breaches(YAML(typ="safe", pure=True).load(text), schema, schema))


@pytest.mark.parametrize("name", ["inventory.schema.json", "job.schema.json"])
def test_what_is_checked_in_is_what_the_models_say(name: str) -> None:
    """After a change of a model: python -m clusterctl.specs.json_schema NAME > clusterctl/specs/schemas/NAME."""
    assert (SCHEMAS / name).read_text(encoding="utf-8") == render_schemas()[name]


def test_all_schemas_are_checked_in() -> None:
    """No more, no fewer."""
    assert {path.name for path in SCHEMAS.iterdir()} == set(render_schemas())


@pytest.mark.process
def test_the_command_prints_a_schema() -> None:
    """As the docstring promises."""
    command = [sys.executable, "-m", "clusterctl.specs.json_schema"]
    printed = subprocess.run(
        [*command, "job.schema.json"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    refused = subprocess.run([*command, "x"], capture_output=True, text=True, check=False, cwd=ROOT)

    assert printed.stdout == render_schemas()["job.schema.json"]
    assert (refused.returncode, refused.stdout) == (2, "")


@pytest.mark.parametrize("path", sorted((ROOT / "inventories").glob("*.yaml")), ids=lambda path: path.name)
def test_inventories_fit(path: Path) -> None:
    """An editor has nothing to underline in the examples."""
    assert held_against("inventory", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "playbooks").rglob("job*.yaml")), ids=lambda path: path.parent.name
)
def test_playbooks_fit(path: Path) -> None:
    """Nor in the jobs."""
    assert held_against("job", path.read_text(encoding="utf-8")) == []


RIGHT = [
    (
        "inventory",
        "cluster: 7\nnodes: [{host: a, gpus: '4', nic: eth0, ports: 20000-20100, ssh: {user: 1000}}]",
    ),
    (
        "inventory",
        "cluster: a\nactivate: null\nnodes: [{host: a, nic: [e0, e1], ip: null, ssh: {port: '22'}}]",
    ),
    ("job", "name: a\nscript: b.py\nargs: [1, 1e-4, true, x, '']\nenv: {A: 1, B: true, C: ''}\ngrace: 90"),
    (
        "job",
        "name: a\nmodule: b.c\nnodes: 2\nnproc_per_node: cpu\ngrace: 1h30m\nsecrets: [A, B]\nsync: {exclude: [x]}",
    ),
    ("job", "name: a\nscript: b\nlauncher: launch\nuse_env: true\ngpus: [0, '1']"),
    ("job", "name: a\nlauncher: command\ncommand: [./train.sh, 1e-4]"),
    ("job", "name: a\nscript: b\nnodes: gpu[01-02]\nnproc_per_node: '3'\ngrace: 0.5\ntime_limit: 1d12h"),
    ("job", "name: a\nscript: b\non_end: {command: [./t, 1], when: failed}\nnotify: []"),
    (
        "job",
        "name: a\nscript: b\non_end: null\nnotify: [{to: feishu, url_from: U, secret_from: S, when: [failed]}]",
    ),
]
WRONG = [
    ("inventory", "cluster: a"),
    ("inventory", "cluster: a b\nnodes: [{host: a}]"),
    ("inventory", "cluster: a\nnodes: []"),
    ("inventory", "cluster: a\nnodes: [{name: a}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, hots: b}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, ssh: {port: 0}}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, ssh: {port: x}}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, ssh: {host_keys: 'no'}}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, nic: 'eth0:1'}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, nic: [e0, e0]}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, gpus: -1}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, ports: [1, 2]}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, ip: 'fe80::1'}]"),
    ("inventory", "cluster: a\nnodes: [{host: a, workdir: x}]"),
    ("inventory", "cluster: a\npython: null\nnodes: [{host: a}]"),
    ("job", "name: a"),
    ("job", "name: a\nscript: b\nmodule: c"),
    ("job", "name: a\nscript: b\nargs: [null]"),
    ("job", "name: a\nscript: b\nargs: [[1]]"),
    ("job", "name: a\nscript: b\nargs: --x"),
    ("job", "name: a\nscript: b\nenv: {RANK: 1}"),
    ("job", "name: a\nscript: b\nenv: {PET_X: 1}"),
    ("job", "name: a\nscript: b\nenv: {A B: 1}"),
    ("job", "name: a\nscript: b\nenv: {A: null}"),
    ("job", "name: a\nscript: b\nnproc_per_node: 0"),
    ("job", "name: a\nscript: b\nnproc_per_node: gpus"),
    ("job", "name: a\nscript: b\nnodes: 0"),
    ("job", "name: a\nscript: b\ngrace: soon"),
    ("job", "name: a\nscript: b\ngrace: -1"),
    ("job", "name: a\nscript: b\nlauncher: pyhton"),
    ("job", "name: a\nscript: b\nlauncher: command\ncommand: [c]"),
    ("job", "name: a\nscript: b\nlauncher: launch\nuse_env: maybe"),
    ("job", "name: a\nscript: b\ngpus: []"),
    ("job", "name: a\nscript: b\ngpus: [0, 0]"),
    ("job", "name: a\nscript: b\ngpus: 2"),
    ("job", "name: a\nscript: b\nsecrets: [A, A]"),
    ("job", "name: a\nscript: b\nwalltime: 1h"),
    ("job", "name: a\nscript: b\non_end: {command: []}"),
    ("job", "name: a\nscript: b\non_end: {command: [a], when: lost}"),
    ("job", "name: a\nscript: b\nnotify: [{to: mail, url_from: U}]"),
    ("job", "name: a\nscript: b\nnotify: [{to: slack, url_from: 'https://x'}]"),
]


def read(kind: str, text: str) -> None:
    """Read a text as the file that it is."""
    (parse_inventory if kind == "inventory" else parse_job)(text, "f")


@pytest.mark.parametrize(("kind", "text"), RIGHT)
def test_what_is_right_for_the_parser_is_right_for_editors(kind: str, text: str) -> None:
    """Numbers without quotes included."""
    read(kind, text)

    assert held_against(kind, text) == []


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_what_is_wrong_for_the_parser_is_wrong_for_editors(kind: str, text: str) -> None:
    """As far as a schema can tell."""
    with pytest.raises(SpecError):
        read(kind, text)

    assert held_against(kind, text) != []
