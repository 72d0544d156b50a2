"""Why a node did not come to its start, as an error with the way out."""

from __future__ import annotations

from clusterctl.errors import StartError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.runs.endings import code_of

WITHOUT_TORCH = (
    "add torch to what `setup` installs, or `system_site_packages: true` for the torch of the node"
)
WITHOUT_TORCH_OF_ITS_OWN = (
    "make `import torch.distributed.run` work in that Python; `clusterctl check` shows which one it is"
)


def overdue(wanted: str, limit: float, node: str, evidence: str) -> StartError:
    """Make an error of an event that did not come in time."""
    what = "torchrun was not imported" if wanted == "ready" else f"the node did not say {wanted!r}"
    return StartError(
        f"{what} within {limit:.0f} s",
        code="CC-RUN-034",
        node=node,
        evidence=evidence,
        fix="is its disk or file system slow, or its memory full? Try `import torch` there by hand",
    )


def start_error(header: Untrusted, node: str) -> StartError:
    """Make an error of an event by which a node says that it cannot start."""
    event = header.text("event", 40)
    said = header.text("text") or header.text("reason") or event
    if event == "setup_failed":
        return _setup_error(header, node)
    if event == "gate_failed":
        return StartError(
            "torchrun cannot be loaded there",
            code=code_of(header) or "CC-RUN-030",
            node=node,
            evidence=said,
            fix=WITHOUT_TORCH if header.flag("environment") else WITHOUT_TORCH_OF_ITS_OWN,
        )
    if event == "join_failed":
        port = header.integer("port", 1, 65535)
        return StartError(
            f"it cannot reach the agent of node 0 over the training network, port {port}",
            code="CC-NET-022",
            node=node,
            evidence=header.text("error"),
            fix="let the nodes reach node 0 on every port of the training network, or name open ones as `ports:`",
        )
    return StartError("the run did not start", code="CC-RUN-031", node=node, evidence=said)


def _setup_error(header: Untrusted, node: str) -> StartError:
    """Make an error of what a node says of its `setup` or `before`."""
    code, log = code_of(header) or "CC-SETUP-001", header.text("log", 1000)
    again = header.text("again")
    fixes = {
        "CC-SETUP-002": "more time: `setup.time_limit`; or does a download wait for a network that is not there?",
        "CC-SETUP-004": "install it on the node, or put its directory on PATH by `activate`",
        "CC-DISK-001": "make room there: `clusterctl clean`, or another `workdir`",
    }
    fix = fixes.get(code) or (
        f"to see it there again: {again}" if again else f"all it said is in {log} of the run"
    )
    why, text = header.text("why", 1000) or "setup failed", header.text("text")
    return StartError(why, code=code, node=node, evidence=text, fix=fix)
