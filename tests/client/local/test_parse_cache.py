"""Inventories and jobs that were read before: the same value, nothing that a file could smuggle in, no stale one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from clusterctl.cli.context.load import load_job
from clusterctl.client.local import parse_cache
from clusterctl.client.local.parse_cache import MAX_TEXTS, parse_once
from clusterctl.errors import SpecError
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.parse import parse_job

ROOT = Path(__file__).parents[3]
INVENTORIES = sorted((ROOT / "inventories").glob("*.yaml"))
JOBS = sorted((ROOT / "playbooks").glob("*/job.yaml"))
TEXT = "cluster: lab\nnodes:\n  - {host: 10.0.0.1, nic: [eth0, eth1], gpus: 4}\n"


def refuse(text: str, file: str) -> NoReturn:
    """Stand for the parser where it must not be asked."""
    pytest.fail(f"{file} was parsed again: {text[:20]}")


@pytest.mark.parametrize("file", INVENTORIES, ids=lambda file: file.name)
def test_inventory_comes_back_whole(file: Path, tmp_path: Path) -> None:
    """An inventory that is remembered equals the one that was parsed."""
    text = file.read_text(encoding="utf-8")
    parsed = parse_once(tmp_path, text, str(file), Inventory, parse_inventory)
    assert (
        parse_once(tmp_path, text, str(file), Inventory, refuse) == parsed == parse_inventory(text, str(file))
    )


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.parent.name)
def test_job_comes_back_whole(file: Path, tmp_path: Path) -> None:
    """A job that is remembered equals the one that was parsed."""
    text = file.read_text(encoding="utf-8")
    parsed = parse_once(tmp_path, text, str(file), Job, parse_job)
    assert parse_once(tmp_path, text, str(file), Job, refuse) == parsed == parse_job(text, str(file))


def test_every_key_of_a_job_comes_back(tmp_path: Path) -> None:
    """Nested values, such as setup, hooks, restart, notify and waivers, are remembered too."""
    text = """
name: all
script: train.py
env: {A: 1e-4}
setup: {venv: requirements.txt, run: ['true']}
before: {run: 'true'}
restart: {on: [node_lost], spares: 1}
on_end: {command: [./tell.sh]}
notify: [{to: slack, url_from: URL}]
waive: [{code: CC-NET-009, reason: known}]
"""
    parsed = parse_once(tmp_path, text, "job.yaml", Job, parse_job)
    assert parsed.setup
    assert parsed.waive
    assert parse_once(tmp_path, text, "job.yaml", Job, refuse) == parsed


def test_errors_are_not_remembered(tmp_path: Path) -> None:
    """What is wrong is reported each time, and leaves nothing behind."""
    for _ in range(2):
        with pytest.raises(SpecError, match="nodes"):
            parse_once(tmp_path, "cluster: lab\n", "i.yaml", Inventory, parse_inventory)
    assert list(tmp_path.iterdir()) == []


def test_other_text_file_or_kind_is_another_value(tmp_path: Path) -> None:
    """A changed text is read again, and the same text in another file keeps its own name."""
    first = parse_once(tmp_path, TEXT, "a.yaml", Inventory, parse_inventory)
    assert parse_once(tmp_path, TEXT, "b.yaml", Inventory, parse_inventory).file == "b.yaml"
    changed = TEXT.replace("gpus: 4", "gpus: 8")
    assert parse_once(tmp_path, changed, "a.yaml", Inventory, parse_inventory).nodes[0].gpus == 8
    assert first.nodes[0].gpus == 4
    with pytest.raises(SpecError):
        parse_once(tmp_path, TEXT, "a.yaml", Job, parse_job)


def test_other_code_parses_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade or an edit of the specs nothing old is believed."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "inventory.py").write_text("# one version")
    monkeypatch.setattr(parse_cache, "SPECS", specs)
    kept = tmp_path / "kept"
    parse_once(kept, TEXT, "a.yaml", Inventory, parse_inventory)
    parse_once(kept, TEXT, "a.yaml", Inventory, refuse)
    (specs / "inventory.py").write_text("# the next version")
    asked = []
    parse_once(kept, TEXT, "a.yaml", Inventory, lambda *of: asked.append(of) or parse_inventory(*of))
    assert asked == [(TEXT, "a.yaml")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[" * 100_000,
        "null",
        '{"is": "Inventory"}',
        '{"is": "Inventory", "of": {}}',
        '{"is": "Inventory", "of": {"cluster": "x", "file": "f", "nodes": [], "more": 1}}',
        '{"is": "Node", "of": {"name": "a", "node_rank": 0, "host": "a"}}',
        '{"is": "Path", "of": {}}',
        '{"is": "", "of": {}}',
        "directory",
    ],
    ids=lambda content: content[:30] or "empty",
)
def test_damaged_or_hostile_file_is_no_cache(content: str, tmp_path: Path) -> None:
    """Whatever lies in the cache, nothing but our own values is made of it, and the text is parsed again."""
    kept = tmp_path / "kept"
    expected = parse_once(kept, TEXT, "a.yaml", Inventory, parse_inventory)
    (file,) = kept.iterdir()
    if content == "directory":
        file.unlink()
        file.mkdir()
    else:
        file.write_text(content)
    assert parse_once(kept, TEXT, "a.yaml", Inventory, parse_inventory) == expected


def test_folder_that_cannot_be_written_is_only_slower(tmp_path: Path) -> None:
    """Where nothing can be kept, every read parses."""
    (tmp_path / "file").write_text("")
    value = parse_once(tmp_path / "file" / "specs", TEXT, "a.yaml", Inventory, parse_inventory)
    assert value == parse_inventory(TEXT, "a.yaml")


def test_only_so_many_are_kept_and_for_the_user_alone(tmp_path: Path) -> None:
    """The folder does not grow without end, and only its owner reads it."""
    kept = tmp_path / "kept"
    for count in range(MAX_TEXTS + 3):
        parse_once(kept, TEXT.replace("gpus: 4", f"gpus: {count + 1}"), "a.yaml", Inventory, parse_inventory)
    files = list(kept.iterdir())
    assert len(files) == MAX_TEXTS
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert kept.stat().st_mode & 0o777 == 0o700


def run_twice(program: str, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in a folder, two times with the same state directory beside it, which is no code of a job."""
    state = folder.with_name("state")
    env = {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT)}
    env.pop("CLUSTERCTL_INVENTORY", None)
    command = [sys.executable, "-c", program]
    return [
        subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]


def test_second_command_loads_no_parser(tmp_path: Path) -> None:
    """The second `inventory show` of a file loads neither YAML nor pydantic, and shows the same."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "inventory.yaml").write_text(TEXT)
    program = (
        "import sys; from clusterctl.cli.main import run; code = run(['inventory', 'show', '--json']);"
        "print(*(name for name in ('pydantic', 'ruamel.yaml') if name in sys.modules), file=sys.stderr);"
        "sys.exit(code)"
    )
    said = run_twice(program, project)
    assert said[0].stdout == said[1].stdout != ""
    assert said[0].stderr.splitlines()[-1] == "pydantic ruamel.yaml"
    assert said[1].stderr.splitlines()[-1] == ""


@pytest.mark.parametrize(
    ("options", "loaded"),
    [
        (["--keep-warm", "10m", "--set", "start=fork"], ""),
        (["--set", "env.TOKEN=s3cret"], "pydantic ruamel.yaml"),
        (["--set", "args=[s3cret]"], "pydantic ruamel.yaml"),
        (["--set", "name=s3cret"], "pydantic ruamel.yaml"),
    ],
)
def test_a_changed_job_is_remembered_unless_a_value_may_be_secret(
    options: list[str], loaded: str, tmp_path: Path
) -> None:
    """Who launches again and again on warm nodes waits for no parser; what is set for `env` is written nowhere."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "inventory.yaml").write_text(TEXT)
    (project / "train.py").write_text("")
    (project / "job.yaml").write_text("{name: a, script: train.py, nproc_per_node: 1, backend: gloo}")
    program = (
        f"import sys; from clusterctl.cli.main import run; run(['launch', '--dry-run', 'job.yaml', *{options!r}]);"
        "print(*(name for name in ('pydantic', 'ruamel.yaml') if name in sys.modules), file=sys.stderr)"
    )
    said = run_twice(program, project)
    assert said[0].stdout == said[1].stdout != ""
    assert said[1].stderr.splitlines()[-1] == loaded
    assert not [
        file for file in (tmp_path / "state").rglob("*") if file.is_file() and b"s3cret" in file.read_bytes()
    ]


def test_what_is_set_is_never_another_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each combination gives what the parser makes of it, in any order, and a file cannot pretend to be one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "job.yaml"
    text = "{name: a, script: train.py, nproc_per_node: 1, backend: gloo}"
    file.write_text(text)
    asked = [
        [],
        ["start=fork"],
        ["start=exec"],
        ["nproc_per_node=2"],
        ["nodes=2", "start=fork"],
        ["keep_warm=1m"],
    ]
    for overrides in [*asked, *reversed(asked)]:
        changes = [(key, value) for key, _, value in (one.partition("=") for one in overrides)]
        assert load_job(str(file), overrides, ()) == parse_job(text, str(file), changes)
    kept = len(list((tmp_path / "state" / "clusterctl" / "specs").iterdir()))
    assert kept == len(asked)
    for pretended in (f"{text}\0start=fork", f"start=fork\0{text}", f"1\0start=fork\0{text}"):
        file.write_text(pretended)
        with pytest.raises(SpecError, match="U\\+0000"):
            load_job(str(file), (), ())


def test_another_accounts_file_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another account has put in its place would choose how we log in: the text is parsed."""
    expected = parse_once(tmp_path, TEXT, "a.yaml", Inventory, parse_inventory)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("10.0.0.1", "10.6.6.6"))
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert parse_once(tmp_path, TEXT, "a.yaml", Inventory, parse_inventory) == expected
