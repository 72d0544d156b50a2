"""Paths that the pages for contributors name exist, and the drawing of the package is drawn from the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import imports
import pytest
from pages import ROOT

PACKAGE = ROOT / "clusterctl"
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / "inside" / name for name in ("architecture.md", "extending.md")),
]
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
FILE = re.compile(r"[\w-]+\.(?:py|yaml|md|json|toml|txt)")


def paths(text: str) -> Iterator[str]:
    """Give what in a text's code spans is a path: of letters, with a slash in it or a file's ending."""
    for span in SPAN.findall(re.sub(r"(?ms)^```.*?^```$", "", text)):
        word = span.split("::")[0]
        if PATH.fullmatch(word) and ("/" in word or FILE.fullmatch(word)) and not word.startswith("CC-"):
            yield word


def is_there(path: str) -> bool:
    """Return whether a path exists in the checkout or in the package; modules may be named without `.py`."""
    places = (ROOT / path, PACKAGE / path)
    return any(place.exists() or place.with_suffix(".py").exists() for place in places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_on_the_page_exists(page: Path) -> None:
    """A file that has moved is named where it is now."""
    named = list(paths(page.read_text(encoding="utf-8")))

    assert len(named) > 5
    assert [path for path in named if path not in NOT_OURS and not is_there(path)] == []


STEP = re.compile(r"^\| \d \| `([\w.]+)` \| `([\w/.]+)` \|", re.MULTILINE)


def test_every_step_of_a_failure_is_a_function() -> None:
    """The list from a worker's exit to the screen names functions of the modules beside them, and it is short."""
    page = (ROOT / "docs" / "inside" / "architecture.md").read_text(encoding="utf-8")
    steps = STEP.findall(
        page.split("## One failure, from the worker's exit to the screen")[1].split("\n## ")[0]
    )
    numbers = re.findall(r"^\| (\d+) \| `", page, re.MULTILINE)

    assert [step for step in steps if step[0] not in functions_of(PACKAGE / step[1])] == []
    assert len(steps) == len(numbers) > 20 and max(map(int, numbers)) <= 8


def functions_of(module: Path) -> set[str]:
    """Name the functions of a module, those of a class behind its name."""
    body = ast.parse(module.read_text(encoding="utf-8")).body
    kinds = [("", body), *((f"{node.name}.", node.body) for node in body if isinstance(node, ast.ClassDef))]
    return {
        prefix + node.name for prefix, nodes in kinds for node in nodes if isinstance(node, ast.FunctionDef)
    }


NOT_OURS = {  # on a node, in a job, or to be made by the reader
    *("code/", "job.yaml", "README.md", "README.zh-CN.md", ".ci/run", "inventory.yaml"),
}


@pytest.mark.parametrize("folder", imports.folders())
def test_a_folders_docstrings_name_what_is_there(folder: str) -> None:
    """A docstring of a folder leads to modules and folders that exist."""
    text = (PACKAGE / folder / "__init__.py").read_text(encoding="utf-8")
    wrong = [path for path in paths(text) if not is_there(path) and not is_there(f"{folder}/{path}")]

    assert wrong == []
    assert len(imports.purpose(folder)) <= 100, "its first sentence is a line of the tree"
