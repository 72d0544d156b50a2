"""The generated parts of the manual say what the code reports, and no code of an error is left out."""

from __future__ import annotations

import re
import subprocess
import sys

from pages import ROOT

from clusterctl.protocol.states import STATES

MANUAL = ROOT / "docs" / "en"
CODE = re.compile(r"\bCC-[A-Z]+-[0-9]{3}\b")


def test_generated_parts_are_current() -> None:
    """If this fails: python tools/docs/generate.py."""
    script = [sys.executable, str(ROOT / "tools" / "docs" / "generate.py"), "--check"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def codes_in_package() -> set[str]:
    """Find every code that the package names."""
    return {
        code
        for path in (ROOT / "clusterctl").rglob("*.py")
        for code in CODE.findall(path.read_text(encoding="utf-8"))
    }


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
