"""Train PyTorch models on machines that are reachable only by SSH.

The names below are the public Python API; they load when they are first used.

    inventory = clusterctl.parse_inventory(text, "inventory.yaml")
    job = clusterctl.parse_job(text, "job.yaml")
    members = clusterctl.plan_placement(inventory, job)
    plan = clusterctl.plan_launch(job, members, {m.name: clusterctl.offline(m) for m in members}, run_id=None)
    print(clusterctl.render_plan(plan))
"""

import os
import sys

_COMMANDS = ("clusterctl", "cctl")


def _exit_interrupted(number: int = 2, *_: object) -> None:
    """Leave at once: nothing was begun, and an exception could be dropped in an import."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(128 + number)


def _is_command() -> bool:
    """Return whether this process is the command: what Python runs, also after `-m`, stands before the words for it."""
    asked = sys.orig_argv[-len(sys.argv) :][:1]
    return bool(asked) and asked[0].rpartition("/")[2] in _COMMANDS


# These are the first lines of ours that run: an interrupt before them meets nothing but Python. It holds until
# `clusterctl.interrupts` takes over. A program that imports this package keeps its own handler.
if _is_command():
    try:
        import signal

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _exit_interrupted)
    except KeyboardInterrupt:
        _exit_interrupted()

TYPE_CHECKING = False  # typing takes as long to load as all that follows
if TYPE_CHECKING:
    from typing import Any

    from clusterctl.errors import ClusterctlError as ClusterctlError
    from clusterctl.errors import SpecError as SpecError
    from clusterctl.plans.launch.placement import plan_placement as plan_placement
    from clusterctl.plans.launch.plan import offline as offline
    from clusterctl.plans.launch.plan import plan_launch as plan_launch
    from clusterctl.plans.launch.plan import render_plan as render_plan
    from clusterctl.specs.inventory.parse import parse_inventory as parse_inventory
    from clusterctl.specs.job.parse import parse_job as parse_job

__version__ = "0.1.0"

_HOMES = {
    "ClusterctlError": "errors",
    "SpecError": "errors",
    "offline": "plans.launch.plan",
    "parse_inventory": "specs.inventory.parse",
    "parse_job": "specs.job.parse",
    "plan_launch": "plans.launch.plan",
    "plan_placement": "plans.launch.placement",
    "render_plan": "plans.launch.plan",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'clusterctl' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - so that nothing is imported before Ctrl-C is expected

    return getattr(import_module(f"clusterctl.{_HOMES[name]}"), name)
