"""What a node reports when it cannot start: each code with its own words and its own fix."""

from __future__ import annotations

import pytest

from clusterctl.client.rpc.errors import node_error, start_error
from clusterctl.codes.lookup import entries
from clusterctl.protocol.untrusted import Untrusted


def test_taken_ports_are_no_trouble_of_torch() -> None:
    """The title is what the node could not do, the fix that of the code."""
    text = "no free port for the rendezvous: all of `ports: 30000-30001` are in use"
    event = {"event": "gate_failed", "reason": text, "text": text, "code": "CC-NET-020"}
    error = start_error(Untrusted(event), "gpu01")

    assert (error.code, error.message, error.evidence) == ("CC-NET-020", text, "")
    assert error.fix is not None
    assert "`ports:`" in error.fix
    assert "torch" not in error.message + error.fix


def test_a_module_that_cannot_be_loaded_is() -> None:
    """There the evidence is its last words, and the fix is about torch."""
    error = start_error(Untrusted({"event": "gate_failed", "text": "No module named 'torch'"}), "gpu01")

    assert (error.code, error.message) == ("CC-RUN-030", "torchrun cannot be imported on the node")
    assert error.fix is not None
    assert "torch.distributed.run" in error.fix


@pytest.mark.parametrize("code", ["CC-SETUP-001", "CC-SETUP-005", "CC-DISK-002", "CC-SYNC-003", "CC-NEW-001"])
@pytest.mark.parametrize(
    ("again", "fix"),
    [
        ("cd x && make", "correct what the last lines name; to repeat the step on the node: cd x && make"),
        ("", "the full output is in setup.log of the run"),
    ],
)
def test_a_failed_setup_leads_to_its_output(code: str, again: str, fix: str) -> None:
    """Whatever the code, one that this version does not know among them: what failed is in the log."""
    event = {"event": "setup_failed", "code": code, "why": "it failed", "again": again, "log": "setup.log"}
    error = start_error(Untrusted(event), "gpu01")

    assert (error.code, error.message, error.fix) == (code, "it failed", fix)


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: Retrying after connection broken by 'NewConnectionError(\"<HTTPSConnection>: Failed to "
        "establish a new connection: [Errno -3] Temporary failure in name resolution\")': /simple/rich/",
        "error: Failed to fetch: `https://pypi.org/simple/rich/`\n  Caused by: dns error",
        "curl: (6) Could not resolve host: conda.anaconda.org",
    ],
)
def test_a_node_without_internet_gets_its_packages_sent(text: str) -> None:
    """The fix is a wheelhouse, as two commands to paste; a missing package alone is no sign of it."""
    event = {"event": "setup_failed", "code": "CC-SETUP-001", "again": "pip install rich", "text": text}
    fix = start_error(Untrusted(event), "gpu01").fix
    assert fix.splitlines()[1:] == [
        "pip download -r requirements.txt -d wheels",
        "clusterctl launch job.yaml --set setup.wheelhouse=wheels",
    ]
    event["text"] = "ERROR: No matching distribution found for ritch"
    assert "wheelhouse" not in start_error(Untrusted(event), "gpu01").fix


def test_a_code_with_a_fix_of_its_own_keeps_it() -> None:
    """More time is better advice than the log."""
    event = {"event": "setup_failed", "code": "CC-SETUP-002", "again": "true", "log": "setup.log"}

    assert "`setup.time_limit`" in start_error(Untrusted(event), "gpu01").fix


def test_a_node_may_report_any_code() -> None:
    """One that other errors use with other facts, or that nothing here uses, is no bug of this machine."""
    for code in (*entries(), "CC-NEW-001"):
        for event in ("setup_failed", "gate_failed", "join_failed", "other"):
            reported = {"event": event, "code": code, "again": "{x}", "why": "{y}"}
            assert start_error(Untrusted(reported), "gpu01").message, code
        reported = {"code": code, "message": "{limit:g}"}
        assert node_error("gpu01", Untrusted(reported)).message == "{limit:g}", code
