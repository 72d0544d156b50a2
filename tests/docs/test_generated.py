"""The generated parts of the manual say what the code reports, and no code of an error is left out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import generate
import messages
import pytest
from pages import ROOT

from clusterctl.cli.help import VERB_GROUPS
from clusterctl.protocol.states import STATES

MANUAL = ROOT / "docs" / "en"
CODE = re.compile(r"\bCC-[A-Z]+-[0-9]{3}\b")


def test_generated_parts_are_current() -> None:
    """If this fails: python tools/docs/generate.py."""
    script = [sys.executable, str(ROOT / "tools" / "docs" / "generate.py"), "--check"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_nothing_is_written_while_a_text_has_no_chinese(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Chinese page never gets an English sentence."""
    catalogue = messages.updated()
    catalogue.add("a new sentence", "", [("clusterctl/specs/job/schema.py", None)])
    monkeypatch.setattr(messages, "updated", lambda: catalogue)
    monkeypatch.setattr(generate, "rewrite", pytest.fail)

    assert generate.main([]) == 1
    assert "not translated: 'a new sentence'" in capsys.readouterr().err


def test_pages_that_take_from_each_other_are_written_in_one_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until nothing changes; a page that changes each time is an error."""
    first, second, clock = (tmp_path / name for name in ("first.md", "second.md", "clock.md"))
    pages = {first: lambda: second.read_text() if second.exists() else "", second: lambda: "text"}
    monkeypatch.setattr(generate, "generated", lambda: [(path, make()) for path, make in pages.items()])

    assert generate.rewrite() == [] and first.read_text() == "text"
    pages[clock] = lambda: clock.read_text() + "." if clock.exists() else ""
    assert generate.rewrite() == [clock]


def codes_in_package() -> set[str]:
    """Find every code that the package names."""
    return {
        code
        for path in (ROOT / "clusterctl").rglob("*.py")
        for code in CODE.findall(path.read_text(encoding="utf-8"))
    }


def codes_explained() -> set[str]:
    """Find every code that has a section, and so an anchor, on the page of codes."""
    page = (MANUAL / "reference" / "codes.md").read_text(encoding="utf-8")
    return set(re.findall(rf"^### ({CODE.pattern})$", page, re.MULTILINE))


def test_every_code_is_explained() -> None:
    """A code on the screen leads to its explanation."""
    assert codes_in_package() - codes_explained() == set()


def test_nothing_else_is_explained() -> None:
    """A code that is gone leaves the page too."""
    assert codes_explained() - codes_in_package() == set()


def test_no_page_names_an_unknown_code() -> None:
    """Also not in passing."""
    named = {code for page in MANUAL.rglob("*.md") for code in CODE.findall(page.read_text(encoding="utf-8"))}

    assert named <= codes_in_package()


def test_every_state_is_explained() -> None:
    """`ps` and `status` show no state that the page of runs does not explain."""
    page = (MANUAL / "runs.md").read_text(encoding="utf-8")

    assert {state for state in STATES if f"| `{state}` |" not in page} == set()


def test_every_exit_code_is_explained() -> None:
    """The table holds the exit codes of all errors, and those that are no error of ours."""
    from clusterctl import errors
    from clusterctl.plans.runs.verdict import NO_PROGRESS_EXIT

    page = (MANUAL / "command-line.md").read_text(encoding="utf-8")
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    raised = {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}

    partly_done = 5  # counted from what the nodes answered: cli/context/nodes.py
    assert shown == raised | {0, partly_done, NO_PROGRESS_EXIT, 130}


def test_every_generated_part_has_its_end() -> None:
    """A part that swallowed the next one would leave an end too many, or the other part empty."""
    for page in (*MANUAL.rglob("*.md"), *MANUAL.with_name("inside").glob("*.md")):
        marks = re.findall(
            r"^<!-- (generated|end of generated)\b", page.read_text(encoding="utf-8"), re.MULTILINE
        )

        assert marks == ["generated", "end of generated"] * (len(marks) // 2), page.name
    page = (MANUAL / "reference" / "verbs.md").read_text(encoding="utf-8")
    assert "| `-q`, `--quiet` |" in page and "| [`launch`](#launch) |" in page


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_a_readme_lists_the_verbs_by_group(name: str) -> None:
    """The groups and verbs of `--help`, in its order."""
    rows = re.findall(
        r"^\| ([^|`]+) \| ((?:`\w+` ?)+)\|$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    )

    assert [re.findall(r"\w+", verbs) for _, verbs in rows] == [list(verbs) for verbs in VERB_GROUPS.values()]
    assert name != "README.md" or [title for title, _ in rows] == list(VERB_GROUPS)
