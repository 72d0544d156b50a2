"""What a gate is started with: the directories and variables of an attempt, and the process itself."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Dict, Mapping, NamedTuple, Optional, Tuple

from ...protocol import run_paths
from ...protocol.run_paths import ERROR_FILE, RunPaths, WorkdirPaths
from ..diagnose import breakpoint as debugged_rank
from ..diagnose import rank as diagnosed_rank
from ..runtime.children import start_child
from ..runtime.processes import PRIVATE_ENV, Identity, identify
from ..state.environments import activate_environment
from ..state.run_record import run_tag
from ..state.workdir import make_private, make_shared

if TYPE_CHECKING:
    from types import ModuleType

    from ...protocol.messages.files import SentTemplate, Spec
    from ...protocol.messages.local import GateStart


class Gate(NamedTuple):
    """The process that is torchrun after GO, or starts the node's only process."""

    identity: Identity
    go: int
    report: int


class AttemptPaths(NamedTuple):
    """Absolute paths of one attempt."""

    rundir: str
    attempt: str
    torchrun_log: str
    output: str
    values: Dict[str, str]  # what the spec's holes may name before GO


def make_paths(rundir: str, spec: Spec) -> AttemptPaths:
    """Make the attempt's directory and the output directory, which outlives runs."""
    attempt = make_private(RunPaths(rundir).attempt(spec["attempt"]))
    output = make_shared(spec["output_dir"])
    values = {"run_dir": rundir, "output_dir": output, "attempt": str(spec["attempt"])}
    values["stage_dir"] = WorkdirPaths(RunPaths(rundir).workdir).stage
    values["node_rank"], values["nnodes"] = str(spec["node_rank"]), str(spec["nnodes"])
    if spec["world_size"] is not None:
        values["world_size"] = str(spec["world_size"])
    values["environment"] = str(spec.get("environment") or "")
    values["resume"] = ""
    if spec.get("resume"):
        values["resume"] = os.path.join(find_checkpoints(spec, values), spec["resume"])
    torchrun_log = os.path.join(rundir, run_paths.torchrun_log(spec["attempt"]))
    return AttemptPaths(rundir, attempt, torchrun_log, output, values)


def find_checkpoints(spec: Spec, values: Mapping[str, str]) -> str:
    """Return the directory that the checkpoints of a job are in."""
    return os.path.dirname(render_template(spec["checkpoints"]["path"], values))


def render_template(template: SentTemplate, values: Mapping[str, str]) -> str:
    """Put values into the holes of a text."""
    if isinstance(template, str):
        return template
    return "".join(part if isinstance(part, str) else values[part["fill"]] for part in template)


def can_render(template: SentTemplate, values: Mapping[str, str]) -> bool:
    """Whether every hole of a text has a value."""
    return isinstance(template, str) or all(
        isinstance(part, str) or part["fill"] in values for part in template
    )


def plan_environment(
    inherited: Mapping[str, str], spec: Spec, secrets: Mapping[str, str], paths: AttemptPaths
) -> Tuple[Dict[str, str], Dict[str, SentTemplate]]:
    """Return the gate's environment, and what can only be set at GO."""
    prefixes = tuple(spec["unset_prefixes"])
    remaining = {
        key: value
        for key, value in inherited.items()
        if key not in (*spec["unset"], *PRIVATE_ENV) and not key.startswith(prefixes)
    }
    renderable = {
        key: template for key, template in spec["env"].items() if can_render(template, paths.values)
    }
    env = {"PYTHONUNBUFFERED": "1", **remaining}
    env.update({key: render_template(template, paths.values) for key, template in renderable.items()})
    env.update(secrets)
    if spec.get("environment"):
        activate_environment(env, spec["environment"], spec["setup"]["kind"] or "")
    env.update(
        CLUSTERCTL_RUN=run_tag(spec),
        CLUSTERCTL_RUN_ID=spec["run"],
        CLUSTERCTL_ATTEMPT=str(spec["attempt"]),
        CLUSTERCTL_PYTHON=spec["python"],
        CLUSTERCTL_OUTPUT_DIR=paths.output,
        TORCHELASTIC_ERROR_FILE=os.path.join(paths.attempt, ERROR_FILE),
    )
    if "checkpoints" in spec:
        env["CLUSTERCTL_RESUME"] = paths.values["resume"]
    if spec.get("diagnose") is not False or spec.get("debug"):
        env[diagnosed_rank.VARIABLE] = RunPaths(paths.rundir).diagnosis(spec["attempt"])
    return env, {key: template for key, template in spec["env"].items() if key not in renderable}


def read_source(module: ModuleType) -> str:
    """Read the source of a module of the payload, which is a zip file."""
    return module.__loader__.get_source(module.__name__) or ""  # type: ignore[union-attr]


def prepare_diagnosis(folder: str, search_path: str, *, debug: bool = False) -> str:
    """Write the `sitecustomize` of the workers, by which they can be asked where they are; returns their PYTHONPATH.

    The gate does not get it: it is no rank, and forks only where nothing runs at each start of the interpreter.
    """
    site = os.path.join(folder, diagnosed_rank.SITE)
    modules = {
        diagnosed_rank.MODULE: diagnosed_rank,
        **({debugged_rank.MODULE: debugged_rank} if debug else {}),
    }
    try:
        compiled = os.path.join(site, "__pycache__")  # else made by Python, readable for others
        for parent in (
            os.path.dirname(folder),
            folder,
            site,
            compiled,
        ):  # makedirs gives its mode to the last only
            os.makedirs(parent, 0o700, exist_ok=True)
        texts = {name: read_source(module) for name, module in modules.items()}
        texts["sitecustomize"] = diagnosed_rank.STARTER
        for module, text in texts.items():
            with open(os.path.join(site, module + ".py"), "w", encoding="utf-8") as sink:
                sink.write(text)
    except OSError:  # a full disk: the ranks start without
        return search_path
    return os.pathsep.join(filter(None, (site, search_path)))


def gate_start(spec: Spec) -> GateStart:
    """Return how a gate is to start workers, of a spec that has `start`."""
    start = spec["start"]
    return {"preload": start["preload"], "workers": spec["nproc"] or 1}


def start_gate(
    spec: Spec, env: Mapping[str, str], paths: AttemptPaths, start: Optional[GateStart] = None
) -> Gate:
    """Start the gate, which will run torch's module or a program; a failing exec is written to torchrun.log."""
    (go_read, go), (report, report_write), log = os.pipe(), os.pipe(), paths.torchrun_log
    kept = (go_read, report_write)
    argv = [spec["python"], sys.argv[0], "gate", *map(str, kept), spec["module"] or ""]
    if start is not None or "start" in spec:
        argv.append(json.dumps(start or gate_start(spec)))
    pid = start_child(argv, env, (log, log), kept=kept, directory=paths.rundir, is_bound=True)
    for descriptor in kept:
        os.close(descriptor)
    return Gate(identify(pid), go, report)


WITHOUT_ATTEMPT = AttemptPaths(rundir="/", attempt="", torchrun_log=os.devnull, output="", values={})


def start_waiting(spec: Spec, env: Mapping[str, str]) -> Gate:
    """Start a gate that waits for its attempt; what its imports print is lost."""
    start: GateStart = {**gate_start(spec), "waits": True}
    return start_gate(spec, env, WITHOUT_ATTEMPT, start)
