"""How a conversation with a node can end badly: which code, and which case of it in `clusterctl/codes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from clusterctl.client.rpc.frames import FrameReader
from clusterctl.codes.lookup import REPORTED, word
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
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.facts.untrusted import clean_lines, clean_text
from clusterctl.plans.ssh import ACTIVATED, ACTIVATING, SHELL_ENDED, STOLEN_STDIN
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import EventName

NO_STATUS = -1  # paramiko's exit status when there is none: a signal ended the process
CANNOT_RUN, NOT_FOUND = 126, 127
MAX_TRACE = 1 << 20  # characters of a traceback, of which the end is shown
MAX_EVIDENCE = 4096  # characters of output that are shown as evidence
CODE = re.compile(r"CC-[A-Z]{1,10}-[0-9]{3}")
UNEXPECTED_CODE = "CC-RUN-002"
# What the loaders of glibc and musl write; the shell's status for it is that of a program that is not there.
_LIBRARY = re.compile(
    r"(?:error while loading shared libraries: |Error loading shared library )([^\s:]{1,200})"
)
_TRACEBACK = "Traceback (most recent call last)"
FAMILIES: Mapping[str, type[NodeError]] = {"CC-PY": NoInterpreter, "CC-SYNC": SyncError}


def step_timed_out(node: str, step: str, limit: float) -> ConnectTimeout:
    """Report that a step took too long."""
    return ConnectTimeout("CC-SSH-004", "step", node=node, step=step, limit=limit)


def interpreter_timed_out(
    node: str, python: str, limit: float, noise: bytes, stderr: str, *, activate: str | None = None
) -> ClusterctlError:
    """Report that the interpreter did not answer in time, or that `activate` kept it from starting."""
    if activate is not None and ACTIVATING.encode() in noise and ACTIVATED.encode() not in noise:
        return NoInterpreter(
            "CC-PY-004",
            node=node,
            evidence=_render_output(noise, stderr),
            limit=limit,
            activate=activate.strip(),
        )
    return ConnectTimeout(
        "CC-SSH-004",
        "interpreter",
        node=node,
        evidence=_render_output(noise, stderr),
        python=python,
        limit=limit,
    )


def connection_lost(node: str, evidence: str) -> ConnectionLost:
    """Report that the connection ended."""
    return ConnectionLost("CC-SSH-015", node=node, evidence=evidence)


def connection_silent(node: str, limit: float) -> ConnectionLost:
    """Report that nothing was received for too long."""
    return ConnectionLost("CC-SSH-016", node=node, limit=limit)


def channel_refused(node: str, evidence: str) -> Unreachable:
    """Report that the server lets us in but runs no command for us."""
    return Unreachable("CC-SSH-014", node=node, evidence=evidence)


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
    """Describe why no interpreter started in the login shell.

    `activate`: the node has such a line; `python_source` is the file in which `python` is set.
    """
    evidence = _render_output(noise, stderr)
    if activate and SHELL_ENDED in stderr:
        return _activate_ended(node, python, stderr)
    if status == STOLEN_STDIN:
        return NodeError("CC-SSH-017", "stdin", node=node, evidence=evidence)
    code, case = _no_interpreter(status, noise, stderr, activate=activate)
    library = _LIBRARY.search(stderr)
    return NoInterpreter(
        code,
        case,
        node=node,
        evidence=evidence,
        python=python,
        python_source=python_source,
        library=library[1] if library else "",
        status=_describe_status(status),
        command=command_line(python, "-c", "print(1)"),
    )


def _no_interpreter(status: int, noise: bytes, stderr: str, *, activate: bool) -> tuple[str, str]:
    """Find code and case of why Python did not answer, from its status and output."""
    if status == NOT_FOUND and _LIBRARY.search(stderr):
        return "CC-PY-003", "library"
    if status in (CANNOT_RUN, NOT_FOUND):
        return "CC-PY-001", "" if status == NOT_FOUND else "not-run"
    if _TRACEBACK in stderr:  # Python came up, and what it imported was not its own
        return "CC-PY-003", "traceback"
    if status == 0 and ACTIVATING.encode() not in noise:
        return "CC-PY-003", "shell-ended"
    return "CC-PY-003", "activated" if activate else ""


def _activate_ended(node: str, python: str, stderr: str) -> NoInterpreter:
    before, _, rest = stderr.rpartition(SHELL_ENDED)
    status = rest.split("\n", 1)[0]
    return NoInterpreter(
        "CC-PY-003",
        "activate",
        node=node,
        evidence=before.strip()[-MAX_EVIDENCE:],
        status=status,
        python=python,
    )


def verb_died(node: str, verb: str, status: int, stderr: str) -> NodeError:
    """Report that the step's process on the node ended without an answer."""
    return NodeError(
        "CC-RUN-003", node=node, evidence=stderr[-MAX_EVIDENCE:], verb=verb, status=_describe_status(status)
    )


def malformed_answer(node: str, reader: FrameReader, error: Exception) -> NodeError:
    """Report that the node's answer is no answer."""
    if not reader.started:
        return output_flood(node, _render_output(reader.noise, ""))
    return NodeError("CC-RUN-004", node=node, evidence=str(error))


def unsolicited_data(node: str, verb: str, size: int) -> NodeError:
    """Report that the node sends without end while it should receive."""
    return NodeError(
        "CC-RUN-004",
        "unsolicited",
        node=node,
        evidence=tr("{size} MiB arrived while data was being sent to it", size=size >> 20),
        verb=verb,
    )


def output_flood(node: str, evidence: str) -> NodeError:
    """Report that the login shell writes without end."""
    return NodeError("CC-SSH-017", "flood", node=node, evidence=evidence)


def node_error(node: str, error: Untrusted) -> ClusterctlError:
    """Turn an error that the node reported into ours; a node may report anything, at any length."""
    code, trace = parse_code(error) or UNEXPECTED_CODE, error.text("traceback", MAX_TRACE)
    message = translate_node_text(clean_text(error.text("message")) or "unknown")
    if trace:
        evidence = clean_lines(trace, MAX_EVIDENCE)
        return InternalError(code, REPORTED, node=node, evidence=evidence, message=message)
    kind = next((kind for family, kind in FAMILIES.items() if code.startswith(family)), NodeError)
    return kind(code, REPORTED, node=node, message=message)


def parse_code(error: Untrusted) -> str:
    """Return the code that a node names, if it has the form of one; empty otherwise."""
    code = error.text("code", 40)
    return code if CODE.fullmatch(code) else ""


def _describe_status(status: int) -> str:
    if status == NO_STATUS:
        return tr("was killed by a signal")
    return tr("exited with status {status}", status=status)


def _render_output(noise: bytes, stderr: str) -> str:
    lines = noise.decode("utf-8", "replace").splitlines()
    parts = ("\n".join(line for line in lines if line not in (ACTIVATING, ACTIVATED)).strip(), stderr.strip())
    return "\n".join(text for text in parts if text)[-MAX_EVIDENCE:]


def start_timed_out(event: EventName, limit: float, node: str, evidence: str) -> StartError:
    """Make an error of an event that did not come in time."""
    case = "import" if event == "ready" else ""
    return StartError("CC-RUN-034", case, node=node, evidence=evidence, event=event, limit=limit)


def start_error(header: Untrusted, node: str) -> StartError:
    """Make an error of an event by which a node reports that it cannot start."""
    event = cast("EventName", header.text("event", 40))
    detail = header.text("text") or header.text("reason") or event
    if event == "setup_failed":
        return _setup_error(header, node)
    if event == "gate_failed":
        return _gate_error(header, node, detail)
    if event == "join_failed":
        port = header.integer("port", 1, 65535)
        evidence = translate_node_text(header.text("error"))
        return StartError("CC-NET-022", node=node, evidence=evidence, port=port)
    return StartError("CC-RUN-031", node=node, evidence=translate_node_text(detail))


def _gate_error(header: Untrusted, node: str, detail: str) -> StartError:
    """Make an error of what kept torchrun from starting: the module, or what its agent needs for it."""
    code = parse_code(header) or "CC-RUN-030"
    if code == "CC-RUN-030":
        case = "environment" if header.flag("environment") else ""
        return StartError("CC-RUN-030", case, node=node, evidence=translate_node_text(detail))
    reason = clean_text(header.text("reason")) or detail
    evidence = "" if reason == detail else translate_node_text(detail)
    return StartError(code, REPORTED, node=node, evidence=evidence, message=translate_node_text(reason))


# As pip, uv, conda and curl report that a node resolves no name, or has no way out.
_WITHOUT_NETWORK = re.compile(
    r"name resolution|Name or service not known|NameResolutionError|resolve host|dns error|Network is unreachable"
    r"|No route to host|Failed to establish a new connection|ConnectTimeoutError|CondaHTTPError",
    re.IGNORECASE,
)


def _setup_error(header: Untrusted, node: str) -> StartError:
    """Make an error of what a node reports of its `setup` or `before`."""
    code = parse_code(header) or "CC-SETUP-001"
    reason = translate_node_text(header.text("why", 1000) or "setup failed")
    error = StartError(code, REPORTED, node=node, evidence=header.text("text"), message=reason)
    if not error.fix:
        retry_command, log = header.text("again"), header.text("log", 1000)
        case = "again" if retry_command else "log"
        if code == "CC-SETUP-001" and _WITHOUT_NETWORK.search(error.evidence):
            case = "offline"
        error.fix = word("CC-SETUP-001", case, {"message": reason, "command": retry_command, "log": log})[1]
    return error
