"""Train PyTorch models on machines that are reachable only by SSH.

The names of __all__ are the public Python API; they load at their first use. The manual: "From Python".

    run = clusterctl.launch("job.yaml", inventory="inventory.yaml", set={"env.SEED": "1"})
    run.wait(check=True)        # RunFailed has the cause: node, rank, file, line
    losses = clusterctl.run(train, 0.1, hosts=["gpu01", "gpu02"], nproc_per_node=8)     # what each rank returned

A plan needs no node: parse_inventory, parse_job, plan_placement, plan_launch with offline, render_plan.
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

    from clusterctl.api.call import run as run
    from clusterctl.api.run import Cause as Cause
    from clusterctl.api.run import Detached as Detached
    from clusterctl.api.run import Run as Run
    from clusterctl.api.run import RunFailed as RunFailed
    from clusterctl.api.run import attach as attach
    from clusterctl.api.run import check as check
    from clusterctl.api.run import launch as launch
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
    "Cause": "api.run",
    "ClusterctlError": "errors",
    "Detached": "api.run",
    "Run": "api.run",
    "RunFailed": "api.run",
    "SpecError": "errors",
    "attach": "api.run",
    "check": "api.run",
    "launch": "api.run",
    "offline": "plans.launch.plan",
    "parse_inventory": "specs.inventory.parse",
    "parse_job": "specs.job.parse",
    "plan_launch": "plans.launch.plan",
    "plan_placement": "plans.launch.placement",
    "render_plan": "plans.launch.plan",
    "run": "api.call",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'clusterctl' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - so that nothing is imported before Ctrl-C is expected

    return getattr(import_module(f"clusterctl.{_HOMES[name]}"), name)
