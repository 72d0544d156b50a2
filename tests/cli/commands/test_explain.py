"""`clusterctl explain`: every code is told in full; what is no code names the nearest."""

from __future__ import annotations

import json
import re

import pytest

from clusterctl.cli.commands.explain import EXAMPLES_FILE
from clusterctl.cli.main import run
from clusterctl.codes.lookup import entries
from clusterctl.plans import explain
from clusterctl.plans.checks.registry import all_checks

MANUAL = json.loads(EXAMPLES_FILE.read_text(encoding="utf-8"))


def test_every_code_of_the_package_is_explained() -> None:
    """Whatever a screen names, `explain` knows; of a check it shows a real case."""
    for code in entries():
        one = explain.explain(explain.find_code(code), MANUAL)
        assert one.title and (one.text or one.kind == "error"), code
        assert one.do or one.kind == "end of a rank", code
        assert (code not in all_checks()) or (one.why and one.example and one.example["seen"]), code


def test_a_finding_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """Title, effect, reason, rule, example and remedy; the code may be short."""
    assert run(["explain", "net-9"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("CC-NET-009  the MTUs differ  (finding)\n")
    for word in (
        "effect  warning",
        "why  Small messages pass",
        "example  gpu2: 1500; the other ",
        "ip link set",
    ):
        assert word in shown


def test_an_error_and_a_known_text(capsys: pytest.CaptureFixture[str]) -> None:
    """They are no findings, and are told all the same."""
    assert run(["explain", "CC-USE-002"]) == 0
    shown = capsys.readouterr().out
    assert "no inventory was found" in shown
    assert "fix  Use `-i FILE`, or" in shown
    assert run(["explain", "cc-job-22", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["code"], document["kind"]) == (1, "CC-JOB-022", "end of a rank")
    assert document["command"].startswith("clusterctl exec")


def test_what_an_error_is_stands_once(capsys: pytest.CaptureFixture[str]) -> None:
    """When it comes is its effect, not a part of the title."""
    assert run(["explain", "CC-NET-020"]) == 0
    shown = capsys.readouterr().out

    assert shown.startswith("CC-NET-020  no free port for the rendezvous  (error)\n")
    assert "effect  error, when a run starts\n" in shown


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """A family, and all of them."""
    assert run(["explain", "TIME"]) == 0
    shown = capsys.readouterr().out
    assert "CC-TIME-001  the node's clock is wrong" in shown and "CC-NET" not in shown
    assert run(["explain"]) == 0
    assert len(re.findall(r"^  CC-", capsys.readouterr().out, re.MULTILINE)) == len(entries())


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("CC-NET-999", "the nearest is CC-NET-"),
        ("CC-NTE-003", "did you mean NET?"),
        ("NETT", "did you mean NET?"),
        ("???", "the families are SSH, PY"),
        ("x" * 500, "a code looks like CC-NET-003"),
    ],
)
def test_what_is_no_code(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the nearest."""
    assert run(["explain", word]) == 2
    said = capsys.readouterr().err
    assert "CC-USE-050" in said and hint in said


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["torch", "not", "installed"], "CC-TORCH-001"),
        (["connection", "refused"], "CC-SSH-002"),
        (["No module named 'torch'"], "CC-TORCH-001"),
        (["没有安装", "torch"], "CC-TORCH-001"),
    ],
)
def test_words_are_searched_in_the_texts(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also words of an error message, in either language; the only code that is found is explained."""
    assert run(["explain", *words]) == 0
    assert code in capsys.readouterr().out
