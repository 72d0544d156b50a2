"""With `--json` an error is JSON on stdout too: its code, text, place and fix, whatever the verb and the language."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG

from clusterctl.cli.main import run

WRONG = "nodes:\n  - {host: gpu01, prot: 2222}\n  - {host: gpu02, gpus: many}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without an inventory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Read the one line of stdout."""
    (line,) = capsys.readouterr().out.splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status", "--json"], "CC-USE-002"),
        (["ps", "--json", "--no-such-option"], "CC-USE-001"),
        (["explain", "--json", "CC-NET-999"], "CC-USE-050"),
        (["launch", "--json", "missing.yaml"], "CC-SPEC-007"),
        (["pull", "--json", "--job"], "CC-USE-001"),
    ],
)
def test_an_error_is_a_document(
    words: list[str], code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In English also where the user reads Chinese."""
    monkeypatch.setenv("CLUSTERCTL_LANG", "zh")
    assert run(words) == 2
    read = document(capsys)

    assert read["schema"] == 1
    assert read["error"]["code"] == code
    assert read["error"] == read["errors"][0]
    assert read["error"]["text"].isascii()


def test_every_problem_of_a_file_has_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One entry each, in the order of the file."""
    (folder / "inventory.yaml").write_text(WRONG)
    assert run(["inventory", "show", "--json"]) == 2
    errors = document(capsys)["errors"]

    assert [error["place"] for error in errors] == ["inventory.yaml:2:19", "inventory.yaml:3:25"]
    assert "'prot'" in errors[0]["text"]


def test_without_json_stdout_stays_empty(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the word stands behind `--` and is for another program."""
    assert run(["status"]) == 2
    assert capsys.readouterr().out == ""
    assert run(["exec", "--", "tool", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_the_word_json_for_another_program_leaves_the_language(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind `--` it is not for us: who reads Chinese gets the error in Chinese."""
    monkeypatch.setenv("CLUSTERCTL_LANG", "zh")
    texts = []
    for words in (["exec", "--", "tool", "--json"], ["exec", "--", "tool"]):
        assert run(words) == 2
        texts.append(capsys.readouterr().err)

    assert not texts[0].isascii()
    assert texts[0] == texts[1]


def test_a_result_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A verb that succeeds writes its document alone."""
    assert run(["explain", "--json", "job.restart"]) == 0
    read = json.loads(capsys.readouterr().out)

    assert "error" not in read
    assert read["keys"][0]["path"] == "job.restart"


@pytest.mark.parametrize("target", ["/dev/full", "closed"])
def test_without_a_reader_there_is_no_traceback(folder: Path, target: str) -> None:
    """A full disk, or a reader that has gone: the exit code stays, stderr has the error alone."""
    reader, writer = os.pipe()
    os.close(reader)
    out = writer if target == "closed" else os.open(target, os.O_WRONLY)
    words = [sys.executable, "-m", "clusterctl", "status", "--json"]
    done = subprocess.run(
        words, stdout=out, stderr=subprocess.PIPE, text=True, cwd=folder, timeout=HANG, check=False
    )

    assert done.returncode == 2
    assert "CC-USE-002" in done.stderr and "Traceback" not in done.stderr
