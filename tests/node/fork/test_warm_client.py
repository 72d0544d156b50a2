"""Messages over a local socket: bounded, whole, and from this account's own directory."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterctl.node.fork import warm_client as client
from clusterctl.node.fork.standby import listen
from clusterctl.node.fork.warm_client import (
    LENGTH,
    MAX_BYTES,
    close_all,
    pack_variables,
    receive,
    send,
    unpack_variables,
)
from clusterctl.protocol.untrusted import MalformedError

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Make two connected sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def open_descriptors() -> int:
    """Count what this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_message_arrives_with_its_descriptors(pair: Pair) -> None:
    """They are closed on exec, and every byte of a variable arrives."""
    read, write = os.pipe()
    env = {"NAME": os.fsdecode(b"\xff\xfe caf\xc3\xa9\n"), "EMPTY": "", "WITH": "a=b"}
    send(pair[0], {"do": "start", "argv": [], "env": pack_variables(env), "rundir": "", "cwd": "/"}, (write,))
    message, descriptors = receive(pair[1])
    assert message is not None
    assert unpack_variables(message.texts("env", 10)) == env
    assert not os.get_inheritable(descriptors[0])
    os.write(descriptors[0], b"x")
    assert os.read(read, 1) == b"x"
    close_all([read, write, *descriptors])


@pytest.mark.parametrize(
    "content",
    [
        LENGTH.pack(MAX_BYTES + 1),
        LENGTH.pack(2) + b"[]",
        LENGTH.pack(3) + b"{x}",
        LENGTH.pack(4) + b"\xff\xfe\xfd\xfc",
    ],
)
def test_what_is_no_message_is_refused_and_its_descriptors_are_closed(pair: Pair, content: bytes) -> None:
    """A length beyond the bound is not read, and what is no JSON object is no message."""
    before = open_descriptors()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))]
    pair[0].sendmsg([content[:4]], rights)
    pair[0].sendall(content[4:])
    with pytest.raises(MalformedError):
        receive(pair[1])
    assert open_descriptors() == before


@pytest.mark.parametrize("content", [b"", b"\0\0", LENGTH.pack(10) + b"{"])
def test_a_message_that_ends_early_is_the_end(pair: Pair, content: bytes) -> None:
    """Nothing of it is used."""
    pair[0].sendall(content)
    pair[0].shutdown(socket.SHUT_WR)
    assert receive(pair[1]) == (None, [])


def test_the_socket_is_in_a_directory_that_is_closed_to_others(tmp_path: Path) -> None:
    """One that others can enter is neither used nor made use of; long paths are no obstacle."""
    workdir = tmp_path / ("a" * 120)
    workdir.mkdir()
    listener, _ = listen(str(workdir), "gpu01")
    with listener:
        assert (workdir / "warm").stat().st_mode & 0o777 == 0o700
        connection = client.connect(str(workdir), "gpu01")
        assert connection is not None
        connection.close()
        assert client.connect(str(workdir), "gpu02") is None, "another node that shares the directory"
        (workdir / "warm").chmod(0o770)
        assert client.connect(str(workdir), "gpu01") is None
    with pytest.raises(OSError, match="can be used by others"):
        listen(str(workdir), "gpu01")


def test_a_directory_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    """Where it leads may be anybody's."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "warm").symlink_to("elsewhere")
    with pytest.raises(OSError, match="warm"):
        listen(str(tmp_path), "gpu01")
    assert client.connect(str(tmp_path), "gpu01") is None


def test_a_socket_that_nobody_listens_at(tmp_path: Path) -> None:
    """It is what a killed server leaves: there is none, and the next one takes the place."""
    listen(str(tmp_path), "gpu01")[0].close()
    assert client.query(str(tmp_path), "gpu01", {"do": "describe"}) is None
    listen(str(tmp_path), "gpu01")[0].close()
