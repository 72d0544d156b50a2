"""What a node reports when it cannot start: each code with its own words and its own fix."""

from __future__ import annotations

from clusterctl.client.rpc.errors import start_error
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

    assert (error.code, error.message) == ("CC-RUN-030", "torchrun cannot be loaded there")
    assert error.fix is not None
    assert "torch.distributed.run" in error.fix
