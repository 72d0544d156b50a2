"""What tests see of the machine they run on: where programs are, and nothing of its user's settings.

The names to keep are listed rather than those to drop: whatever else pip, ssh, git, a shell, Python, torch or
clusterctl may read from the environment is shut out with them, also what no one has thought of.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

# Where programs and libraries are, who runs the tests, and what pytest and coverage tell their own processes.
KEPT = re.compile(
    r"PATH|LD_LIBRARY_PATH|TMPDIR|TERM|SHELL|USER|LOGNAME|PYENV_ROOT"
    r"|CLUSTERCTL_TEST_USER|CLUSTERCTL_REQUIRE_LAB|CLUSTERCTL_RAY_PYTHON|PYTEST_\w+|COV_\w+|COVERAGE_\w+"
)
SET = {
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INDEX": "1",  # what a test installs it has made itself
    "PYTHONNOUSERSITE": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def shut_out(environment: MutableMapping[str, str]) -> Path:
    """Leave in an environment what tests need, with an empty home; returns the home, which the caller removes."""
    for name in [name for name in environment if not KEPT.fullmatch(name)]:
        del environment[name]
    home = Path(tempfile.mkdtemp(prefix="cl-home-"))
    environment.update(SET, HOME=str(home))
    return home


def remove(home: Path) -> None:
    """Remove the home, with what programs have cached there."""
    shutil.rmtree(home, ignore_errors=True)
