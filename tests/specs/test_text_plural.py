"""Numbers with nouns, and paths of a run's code."""

from __future__ import annotations

import pytest

from clusterctl.specs.text import as_in_project, plural


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_counted(number: int, text: str) -> None:
    """Only one is one."""
    assert plural(number, "node") == text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            '  File "/root/.clusterctl/runs/fail-20261121T101500-ab12/1-gpu02/code/train.py", line 17, in main',
            '  File "train.py", line 17, in main',
        ),
        (
            "/data/w/runs/a-1/0-n/code/pkg/m.py:3: warning (/data/w/runs/a-1/0-n/code/x.py)",
            "pkg/m.py:3: warning (x.py)",
        ),
        ("/home/ann/code/train.py", "/home/ann/code/train.py"),
        ("a,/w/runs/a-1/0-n/code/x.py", "a,x.py"),
        ("\\x1b[33m/w/runs/a-1/0-n/code/x.py", "\\x1b[33m/w/runs/a-1/0-n/code/x.py"),
        ("https://h/runs/a-1/0-n/code/x.py", "https://h/runs/a-1/0-n/code/x.py"),
        ("in /home/my user/w/runs/a-1/0-n/code/x.py", "in /home/my user/w/runs/a-1/0-n/code/x.py"),
        ("\u6587\u4ef6/w/runs/a-1/0-n/code/x.py", "\u6587\u4ef6/w/runs/a-1/0-n/code/x.py"),
        ("see /w/runs/a-1/0-n/code/ itself", "see /w/runs/a-1/0-n/code/ itself"),
    ],
)
def test_a_path_of_the_runs_code_is_that_of_the_project(line: str, shown: str) -> None:
    """Every one in a line; other paths stay."""
    assert as_in_project(line) == shown


def test_a_line_of_slashes_costs_no_time() -> None:
    """Each sign is looked at a bounded number of times, whatever a rank writes."""
    text = "/runs/a" * 20_000 + "/code/"
    assert as_in_project(text) == text
