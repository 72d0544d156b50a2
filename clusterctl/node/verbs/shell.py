"""The verb `shell`: how to become a program in a run's directory, with the variables of the run.

node    {"need": "payload"} if this version's is not here; {"argv": [...]}, the beginning of the command to run
The command is started by the user's own ssh, in a terminal. The variables are read when it starts, so that no secret is
sent anywhere or stands in a command line.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Dict, List, Mapping, Union

from ...protocol.messages.environment import is_cleared
from ...protocol.run_paths import RunPaths, WorkdirPaths
from ..runtime.processes import PRIVATE_ENV, interpreter_options, is_alive, restore_signals
from ..runtime.stream import Stream
from ..state.environments import activate_environment, find_run_environment
from ..state.payload import ensure_payload
from ..state.run_files import find_run, read_spec
from ..state.run_record import parse_identity, resolve_state
from ..state.workdir import open_workdir

if TYPE_CHECKING:
    from ...protocol.messages.files import SentTemplate, Spec
    from ...protocol.messages.verbs import ShellRequest

NOT_FOUND, CANNOT_RUN = 127, 126
OF_ALL_RANKS = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what else torchrun sets is of one rank
# of clusterctl itself: a shell is no part of the run, and `stop` must not end it
OWN_VARIABLES = ("CLUSTERCTL_RUN", "CLUSTERCTL_DIAGNOSE", "CLUSTERCTL_ATTEMPT", *PRIVATE_ENV)


def run(request: ShellRequest, stream: Stream) -> None:
    """Answer with the command that becomes a program of the run."""
    rundir = find_run(request["workdir"], request["run"], request["node"])
    payload = ensure_payload(open_workdir(request["workdir"]), request["payload"]["sha256"], stream)
    stream.answer({"argv": [sys.executable, *interpreter_options(), payload, "shell", rundir]})


def main(arguments: List[str]) -> None:
    """Become the account's shell, or the program that is named, in a run's directory with its variables."""
    rundir, argv = arguments[0], arguments[1:] or [login_shell(), "-i"]
    env = run_environment(rundir)
    env["TERM"] = os.environ.get("TERM", "dumb")
    code = RunPaths(rundir).code
    try:
        restore_signals()
        os.chdir(code if os.path.isdir(code) else rundir)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


def login_shell() -> str:
    """Return the account's shell."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def run_environment(rundir: str) -> Dict[str, str]:
    """Return the environment of a live process of the run, or what its job has set, without what is a rank's own."""
    state = resolve_state(rundir)
    entries = [*state["ranks"].values(), state["torchrun"]] if state is not None else []
    identities = [parse_identity(entry) for entry in entries if entry]
    live = [identity for identity in identities if identity is not None and is_alive(identity)]
    env = read_environ(live[0].pid) if live else {}
    if not env:
        spec = read_spec(rundir)
        output = os.path.expanduser(spec["output_dir"]) if spec is not None else ""
        env = dict(os.environ)
        if spec is not None:
            stage = WorkdirPaths(RunPaths(rundir).workdir).stage
            known = {"run_dir": rundir, "output_dir": output, "stage_dir": stage}
            env.update(render_known(spec["env"], known))
            enter_environment(env, rundir, spec)
        env["CLUSTERCTL_OUTPUT_DIR"] = output
    return {
        key: value
        for key, value in env.items()
        if key not in OWN_VARIABLES and (key in OF_ALL_RANKS or not is_cleared(key))
    }


def enter_environment(env: Dict[str, str], rundir: str, spec: Spec) -> None:
    """Set the interpreter of the job, and what its `setup` has created."""
    made = find_run_environment(rundir, spec)
    if made is not None and made.prefix:
        activate_environment(env, made.prefix, spec["setup"]["kind"] or "")
    env["CLUSTERCTL_PYTHON"] = made.python if made is not None and made.prefix else spec["python"]


def render_known(templates: Mapping[str, SentTemplate], values: Dict[str, str]) -> Dict[str, str]:
    """Render the variables of a spec whose holes have a value."""
    rendered: Dict[str, str] = {}
    for key, template in templates.items():
        parts: List[Union[str, None]] = [
            part if isinstance(part, str) else values.get(part.get("fill", ""))
            for part in ([template] if isinstance(template, str) else template)
        ]
        if None not in parts:
            rendered[key] = "".join(part or "" for part in parts)
    return rendered


def read_environ(pid: int) -> Dict[str, str]:
    """Read the variables that a process was started with."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            entries = source.read(1 << 20).decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in entries if "=" in entry)
