"""How a conversation ends badly.

How a conversation with a node can end badly, each as an error with a code and a way out.

Besides the codes that `client.ssh.connect` lists:

| CC-PY-001  | the configured interpreter is not there, or cannot be run      | NoInterpreter |
| CC-PY-002  | it is too old (the node says so)                               | NoInterpreter |
| CC-PY-003  | it ended before it answered, a shared library of it is missing, | NoInterpreter |
|            | or `activate` ended the shell                                  |               |
| CC-PY-004  | `activate` does not come to its end                            | NoInterpreter |
| CC-RUN-002 | a step failed on the node in a way that nobody foresaw         | NodeError     |
|            | the same with a traceback: a bug of ours                       | InternalError |
| CC-RUN-003 | the step's process on the node died; the connection lives      | NodeError     |
| CC-RUN-004 | what the node sent cannot be understood                        | NodeError     |
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterctl.client.rpc.frames import FrameReader
from clusterctl.errors import (
    ClusterctlError,
    ConnectionLost,
    ConnectTimeout,
    InternalError,
    NodeError,
    NoInterpreter,
    StartError,
    SyncError,
    Unreachable,
)
from clusterctl.plans.facts.untrusted import clean_lines, clean_text
from clusterctl.plans.ssh import ACTIVATED, ACTIVATING, SHELL_ENDED, STOLEN_STDIN
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import command_line

NO_STATUS = -1  # paramiko's exit status when there is none: a signal ended the process
CANNOT_RUN, NOT_FOUND = 126, 127
LONGEST_TRACE = 1 << 20  # characters of a traceback, of which the end is shown
MAX_EVIDENCE = 4096  # characters of what was said that are shown as evidence
CODE = re.compile(r"CC-[A-Z]{1,10}-[0-9]{3}")
UNEXPECTED_CODE = "CC-RUN-002"
# What the loaders of glibc and musl write; the shell's status for it is that of a program that is not there.
_LIBRARY = re.compile(
    r"(?:error while loading shared libraries: |Error loading shared library )([^\s:]{1,200})"
)
START_FILES = "the login shell's start-up files (.bashrc, .profile, .zshenv, config.fish)"
_TRACEBACK = "Traceback (most recent call last)"
FAMILIES: Mapping[str, type[NodeError]] = {"CC-PY": NoInterpreter, "CC-SYNC": SyncError}


def step_timed_out(node: str, step: str, limit: float) -> ConnectTimeout:
    """Say that a step took too long."""
    return ConnectTimeout(
        f"no {step} within {limit:g} s",
        code="CC-SSH-004",
        node=node,
        fix="the node may be overloaded or stopped; look whether an ordinary `ssh` to it still answers",
    )


def interpreter_timed_out(
    node: str, python: str, limit: float, noise: bytes, stderr: str, *, activate: str | None = None
) -> ClusterctlError:
    """Say that the interpreter did not answer in time, or that `activate` kept it from starting."""
    if activate is not None and ACTIVATING.encode() in noise and ACTIVATED.encode() not in noise:
        return NoInterpreter(
            f"`activate` did not come to its end within {limit:g} s: {activate.strip()}",
            code="CC-PY-004",
            node=node,
            evidence=_render_output(noise, stderr),
            fix="let `activate` prepare the shell only: nothing in it may wait, ask, or run on; try it there by hand",
        )
    return ConnectTimeout(
        f"{python} did not answer within {limit:g} s",
        code="CC-SSH-004",
        node=node,
        evidence=_render_output(noise, stderr),
        fix=f"look for what reads from stdin, waits, or replaces the shell (`exec fish`) in {START_FILES}; "
        "or the file system is slow",
    )


def connection_lost(node: str, evidence: str) -> ConnectionLost:
    """Say that the connection ended."""
    return ConnectionLost(
        "the connection ended",
        code="CC-SSH-015",
        node=node,
        evidence=evidence,
        fix="the node, its sshd or the network between went away; what runs there may still be running",
    )


def connection_silent(node: str, limit: float) -> ConnectionLost:
    """Say that nothing was heard for too long."""
    return ConnectionLost(
        f"nothing was heard for {limit:g} s",
        code="CC-SSH-016",
        node=node,
        fix="the node or the network between stopped answering; what runs there may still be running",
    )


def channel_refused(node: str, evidence: str) -> Unreachable:
    """Say that the server lets us in but runs no command for us."""
    return Unreachable(
        "the SSH server refuses to run a command",
        code="CC-SSH-014",
        node=node,
        evidence=evidence,
        fix="look at MaxSessions, ForceCommand and the user's login shell on the node",
    )


def interpreter_not_started(
    node: str,
    python: str,
    status: int,
    noise: bytes,
    stderr: str,
    *,
    activate: bool = False,
    python_source: str = "the inventory",
) -> NodeError:
    """Say why no interpreter came up behind the login shell.

    `activate` tells whether there is one, `python_source` in which file `python` is set.
    """
    evidence = _render_output(noise, stderr)
    if activate and SHELL_ENDED in stderr:
        return _activate_ended(node, python, stderr)
    if status == STOLEN_STDIN:
        fix = "let the login shell's start-up files (.bashrc, config.fish, .cshrc) read nothing from stdin"
        text = "the login shell's start-up files read what was meant for the interpreter"
        return NodeError(text, code="CC-SSH-017", node=node, evidence=evidence, fix=fix)
    code, text, fix = _no_interpreter(
        python, status, noise, stderr, activate=activate, python_source=python_source
    )
    return NoInterpreter(text, code=code, node=node, evidence=evidence, fix=fix)


def _no_interpreter(
    python: str, status: int, noise: bytes, stderr: str, *, activate: bool, python_source: str
) -> tuple[str, str, str]:
    """Tell by what was left behind why Python did not answer: code, text and fix."""
    library = _LIBRARY.search(stderr) if status == NOT_FOUND else None
    if library:
        text = f"{python} is there, but cannot load the shared library {library[1]}"
        fix = "let `activate` export LD_LIBRARY_PATH with the directory of that library, or name another `python`"
        return "CC-PY-003", text, fix
    if status in (CANNOT_RUN, NOT_FOUND):
        text = f"{python} {'was not found' if status == NOT_FOUND else 'cannot be run'}"
        fix = f"set `python` in {python_source} to the absolute path of the node's interpreter (3.8 or later)"
        return "CC-PY-001", text, fix
    if _TRACEBACK in stderr:  # Python came up, and what it imported was not its own
        fix = "a file there hides a module of Python: see PYTHONPATH, and the path in the last lines shown"
        return "CC-PY-003", f"{python} came up and failed at once", fix
    if status == 0 and ACTIVATING.encode() not in noise:
        fix = f"look for `exit` and `exec` in {START_FILES}: a shell that is not interactive must come to their end"
        text = f"no interpreter came up: the login shell ended with status 0 before {python} answered"
        return "CC-PY-003", text, fix
    trial = command_line(python, "-c", "print(1)")
    fix = f"see what `{trial}` says there, and look for `exit` in {START_FILES}"
    suspects = f"the login shell, `activate` or {python}" if activate else f"the login shell or {python}"
    return "CC-PY-003", f"no interpreter came up: {suspects} {_describe_status(status)}", fix


def _activate_ended(node: str, python: str, stderr: str) -> NoInterpreter:
    before, _, rest = stderr.rpartition(SHELL_ENDED)
    status = rest.split("\n", 1)[0]
    return NoInterpreter(
        f"`activate` ended the shell with status {status}, so {python} was never started",
        code="CC-PY-003",
        node=node,
        evidence=before.strip()[-MAX_EVIDENCE:],
        fix="let `activate` in the inventory or job prepare the shell only: no `exit`, in what it sources neither",
    )


def verb_died(node: str, verb: str, status: int, stderr: str) -> NodeError:
    """Say that the step's process on the node ended without an answer."""
    return NodeError(
        f"`{verb}` {_describe_status(status)} on the node, without an answer",
        code="CC-RUN-003",
        node=node,
        evidence=stderr[-MAX_EVIDENCE:],
        fix="it was killed, perhaps for want of memory: look at `dmesg` on the node",
    )


def malformed_answer(node: str, reader: FrameReader, error: Exception) -> NodeError:
    """Say that the node's answer is no answer."""
    if not reader.started:
        return output_flood(node, _render_output(reader.noise, ""))
    text = "what the node sent cannot be understood"
    return NodeError(text, code="CC-RUN-004", node=node, evidence=str(error), fix="please report this")


def unsolicited_data(node: str, verb: str, size: int) -> NodeError:
    """Say that the node speaks without end while it should listen."""
    return NodeError(
        f"`{verb}` sends without being asked and does not read",
        code="CC-RUN-004",
        node=node,
        evidence=f"{size >> 20} MiB came while something was being sent to it",
        fix="please report this",
    )


def output_flood(node: str, evidence: str) -> NodeError:
    """Say that the login shell never stops to speak."""
    return NodeError(
        "the login shell floods its output before the interpreter starts",
        code="CC-SSH-017",
        node=node,
        evidence=evidence,
        fix="let the start-up files of the login shell print nothing unless it is interactive",
    )


def node_error(node: str, error: Untrusted) -> ClusterctlError:
    """Turn an error that the node reported into ours; a node may report anything, at any length."""
    code, trace = parse_code(error) or UNEXPECTED_CODE, error.text("traceback", LONGEST_TRACE)
    message = clean_text(error.text("message")) or "unknown"
    if trace:
        return InternalError(message, code=code, node=node, evidence=clean_lines(trace, MAX_EVIDENCE))
    kind = next((kind for family, kind in FAMILIES.items() if code.startswith(family)), NodeError)
    return kind(message, code=code, node=node)


def parse_code(error: Untrusted) -> str:
    """Give the code that a node names, if it has the form of one; empty otherwise."""
    code = error.text("code", 40)
    return code if CODE.fullmatch(code) else ""


def _describe_status(status: int) -> str:
    return "was ended by a signal" if status == NO_STATUS else f"ended with status {status}"


def _render_output(noise: bytes, stderr: str) -> str:
    lines = noise.decode("utf-8", "replace").splitlines()
    parts = ("\n".join(line for line in lines if line not in (ACTIVATING, ACTIVATED)).strip(), stderr.strip())
    return "\n".join(text for text in parts if text)[-MAX_EVIDENCE:]


ENVIRONMENT_TORCH_FIX = (
    "add torch to what `setup` installs, or `system_site_packages: true` for the torch of the node"
)
NODE_TORCH_FIX = (
    "make `import torch.distributed.run` work in that Python; `clusterctl check` shows which one it is"
)
TORCH_CODE = "CC-RUN-030"
GATE_FIXES = {
    "CC-NET-020": "set a wider `ports:` in the inventory; `ss -ltnp` on the node shows which process has them",
    "CC-NET-021": "in the inventory, `ip:` or `nic:` of node 0 must be its own and two of `ports:` free; "
    "if open files are the reason, raise `nofile` on the node",
    "CC-DISK-001": "free space on the node (`clusterctl clean`), or set another `workdir`",
}


def start_timed_out(event: str, limit: float, node: str, evidence: str) -> StartError:
    """Make an error of an event that did not come in time."""
    message = "torchrun was not imported" if event == "ready" else f"the node did not say {event!r}"
    return StartError(
        f"{message} within {limit:.0f} s",
        code="CC-RUN-034",
        node=node,
        evidence=evidence,
        fix="is its disk or file system slow, or its memory full? Try `import torch` there by hand",
    )


def start_error(header: Untrusted, node: str) -> StartError:
    """Make an error of an event by which a node says that it cannot start."""
    event = header.text("event", 40)
    detail = header.text("text") or header.text("reason") or event
    if event == "setup_failed":
        return _setup_error(header, node)
    if event == "gate_failed":
        return _gate_error(header, node, detail)
    if event == "join_failed":
        port = header.integer("port", 1, 65535)
        return StartError(
            f"it cannot reach the agent of node 0 over the training network, port {port}",
            code="CC-NET-022",
            node=node,
            evidence=header.text("error"),
            fix="let the nodes reach node 0 on every port of the training network, or name open ones as `ports:`",
        )
    return StartError("the run did not start", code="CC-RUN-031", node=node, evidence=detail)


def _gate_error(header: Untrusted, node: str, detail: str) -> StartError:
    """Make an error of what kept torchrun from starting: the module, or what its agent needs for it."""
    code = parse_code(header) or TORCH_CODE
    if code == TORCH_CODE:
        fix = ENVIRONMENT_TORCH_FIX if header.flag("environment") else NODE_TORCH_FIX
        return StartError("torchrun cannot be loaded there", code=code, node=node, evidence=detail, fix=fix)
    reason = clean_text(header.text("reason")) or detail
    evidence = "" if reason == detail else detail
    return StartError(reason, code=code, node=node, evidence=evidence, fix=GATE_FIXES.get(code, ""))


def _setup_error(header: Untrusted, node: str) -> StartError:
    """Make an error of what a node says of its `setup` or `before`."""
    code, log = parse_code(header) or "CC-SETUP-001", header.text("log", 1000)
    retry_command = header.text("again")
    fixes = {
        "CC-SETUP-002": "more time: `setup.time_limit`; or does a download wait for a network that is not there?",
        "CC-SETUP-004": "install it on the node, or put its directory on PATH by `activate`",
        "CC-DISK-001": "make room there: `clusterctl clean`, or another `workdir`",
    }
    fix = fixes.get(code) or (
        f"to see it there again: {retry_command}" if retry_command else f"all it said is in {log} of the run"
    )
    reason, text = header.text("why", 1000) or "setup failed", header.text("text")
    return StartError(reason, code=code, node=node, evidence=text, fix=fix)
