"""The commands of a job around an attempt: `python payload.zip hook RUNDIR NAME LOG REPORT`."""

from __future__ import annotations

import os
from typing import List

from .chore import tell
from .steps import StepFailed, Steps
from .workdir import read_json

CODE = "CC-SETUP-005"


def main(arguments: List[str]) -> None:
    """Run the commands of `before` or `after` in the run's code; the first that fails is the last."""
    rundir, name, log, report = arguments[0], arguments[1], arguments[2], int(arguments[3])
    os.set_inheritable(report, False)
    wish = (read_json(os.path.join(rundir, "spec.json")) or {})[name]
    steps = Steps(
        log, os.path.join(rundir, "code"), os.environ, lambda text: tell(report, {"doing": text}), CODE
    )
    try:
        for step in wish["steps"]:
            steps.run(steps.find(step, {}), step["shown"])
        tell(report, {"done": True})
    except StepFailed as error:
        tell(report, {"failed": error.as_dict()})
