"""What answers at a node's address may be no SSH server, or one in hostile hands: each ends in an error in time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from ground import ADDRESS_SPACE, HANG, HERE
from stranger import CONDUCTS, FloodsErrors, FloodsOutput, Stranger
from variants import VARIANT

# The errors of the way in, and those of a server that lets us in but gives no interpreter.
EXPECTED = {
    "silent": ("CC-SSH-004",),
    "greets-only": ("CC-SSH-004",),
    "banner-lines": ("CC-SSH-005", "CC-SSH-006", "CC-SSH-004"),
    "banner-line": ("CC-SSH-005", "CC-SSH-006", "CC-SSH-004"),
    "long-packet": ("CC-SSH-004", "CC-SSH-006"),
    "garbage": ("CC-SSH-004", "CC-SSH-006"),
    "key-exchange": ("CC-SSH-004", "CC-SSH-006"),
    "extensions": ("CC-SSH-006", "CC-SSH-007"),
    "floods-login": ("CC-SSH-004",),
    "never-content": ("CC-SSH-007",),
    "says-nothing": ("CC-SSH-004",),
    "floods-output": ("CC-SSH-017",),
    "floods-errors": ("CC-SSH-004", "CC-SSH-017"),
    "floods-line": ("CC-SSH-004",),
}
# Of each kind of visit one: what comes before the greeting, in the key exchange, at the login and after it.
COMMON = (
    "silent",
    "banner-line",
    "long-packet",
    "key-exchange",
    "never-content",
    "floods-output",
    "floods-line",
)
VISITS = [
    pytest.param(name, codes, id=name, marks=[] if name in COMMON else [VARIANT])
    for name, codes in EXPECTED.items()
]
# A server whose visitor is gone ends quietly.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
MAX_MEMORY = 300 << 20
MAX_ERROR = 16 << 10  # characters of an error


@pytest.fixture
def stranger(request: pytest.FixtureRequest) -> Iterator[Stranger]:
    """A server of the kind that the test is for."""
    server = Stranger(CONDUCTS[request.param])
    yield server
    server.close()


@pytest.mark.parametrize(("stranger", "codes"), VISITS, indirect=["stranger"])
def test_a_visit_ends(stranger: Stranger, codes: tuple[str, ...], tmp_path: Path) -> None:
    """Memory and time are bounded, the node is named, and the exit code reports that it could not be used."""
    own = paramiko.ECDSAKey.generate()
    own.write_private_key_file(str(tmp_path / "key"))
    host = f"[127.0.0.1]:{stranger.port} {stranger.key.get_name()} {stranger.key.get_base64()}\n"
    (tmp_path / "known_hosts").write_text(host, encoding="ascii")
    words = [HERE / "measured.py", tmp_path / "used.json", ADDRESS_SPACE, sys.executable, HERE / "visitor.py"]
    mine = [stranger.port, tmp_path / "known_hosts", tmp_path / "key"]

    done = subprocess.run(
        [sys.executable, "-I", "-S", *map(str, [*words, *mine])],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["code"] in codes, said
    assert said["node"] == "gpu02", said
    assert said["exit"] == (1 if said["code"] == "CC-SSH-017" else 4), (
        said
    )  # let in, but given no interpreter
    assert len(said["text"]) < MAX_ERROR
    assert json.loads((tmp_path / "used.json").read_text())["kib"] << 10 < MAX_MEMORY
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", [FloodsOutput, FloodsErrors])
@pytest.mark.parametrize("end", [EOFError, OSError, paramiko.SSHException])
def test_a_server_whose_visitor_is_gone_ends_quietly(
    kind: type[FloodsOutput | FloodsErrors], end: type[Exception]
) -> None:
    """paramiko reports it in three ways, by chance; none of them is an exception of a thread in pytest's summary."""

    class Gone:
        def sendall(self, _: bytes) -> None:
            raise end

        sendall_stderr = sendall

    before = set(threading.enumerate())
    assert kind(None).check_channel_exec_request(Gone(), b"")
    for thread in set(threading.enumerate()) - before:
        thread.join(HANG)
