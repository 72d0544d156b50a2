"""How the programs of two nodes pass the command line of orted on; mpirun itself is in tests/lab/test_mpirun_lab.py."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from clusterctl.node.runtime.connections import ChannelError
from clusterctl.node.supervise.launchers import mpi

LINE = 'orted -mca orte_hnp_uri "1.0;tcp://10.0.0.1:4711"'


def make_node(folder: Path, monkeypatch: pytest.MonkeyPatch, rank: int, key: str = "k") -> mpi.MpiNode:
    """Make the program of a node, which is not started."""
    for name in ("nic", "OMPI_MCA_btl_tcp_if_include", "CLUSTERCTL_MPI_RANK"):
        monkeypatch.setenv(name, "")  # put back afterwards
    monkeypatch.setattr(mpi.signal, "signal", lambda *_: None)
    order: Any = {
        "head": "127.0.0.1:1",
        "node": f"gpu0{rank}",
        "nic": ["eth9"],
        "slots": [2, 2],
        "node_rank": rank,
    }
    order |= {
        "grace": 20.0,
        "attempt": str(folder / str(rank)),
        "temp_dir": str(folder / "t"),
        "shared_memory": "/dev/shm",
    }
    return mpi.MpiNode({**order, "key": key, "argv": ["sh", "-c", 'echo "$RANK of $WORLD_SIZE"; exit 3']})


def ask(head: mpi.MpiNode, servant: mpi.MpiNode) -> str:
    """Let the program of one node ask that of node 0."""
    theirs, ours = socket.socketpair()
    for end in (theirs, ours):
        end.settimeout(20)
    answers = threading.Thread(target=head.answer, args=(theirs,))
    answers.start()
    try:
        return servant.call_head(mpi.LineReader(ours))
    finally:
        ours.close()
        answers.join()


def test_a_node_gets_its_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a relay has written for it, whole."""
    head, servant = make_node(tmp_path, monkeypatch, 0), make_node(tmp_path, monkeypatch, 1)
    head.lines[1] = LINE

    assert ask(head, servant) == LINE


def test_a_stranger_gets_nothing_and_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides prove the key: who lacks it gets no command line, and can give none."""
    head, servant = make_node(tmp_path, monkeypatch, 0), make_node(tmp_path, monkeypatch, 1, key="another")
    head.lines[1] = LINE

    with pytest.raises(ChannelError, match="closed"):
        ask(head, servant)
    liar, end = socket.socketpair()
    liar.sendall(b'{"nonce": "%s"}\n0 %s . {"orted": "rm -rf /"}\n' % (b"0" * 32, b"0" * 64))
    with pytest.raises(ChannelError, match="out of sequence"):
        make_node(tmp_path, monkeypatch, 1).call_head(mpi.LineReader(end))


def test_strangers_that_say_nothing_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is bounded, the oldest is closed, and a node is answered while they and an accept fail."""
    monkeypatch.setattr(mpi, "MAX_UNPROVEN", 0)
    head, servant = make_node(tmp_path, monkeypatch, 0), make_node(tmp_path, monkeypatch, 1)
    head.lines[1] = LINE
    pairs = [socket.socketpair() for _ in range(5)]  # two for each of the two nodes, and one more
    waiting: list[Any] = [OSError(errno.EMFILE, "Too many open files"), *(theirs for theirs, _ in pairs)]
    ours, node = socket.socketpair()
    for end in (ours, *(end for _, end in pairs)):
        end.settimeout(20)

    def accept() -> tuple[socket.socket, str]:
        if not waiting:
            raise SystemExit  # ends the thread
        entry = waiting.pop(0)
        if isinstance(entry, OSError):
            raise entry
        return entry, ""

    monkeypatch.setattr(mpi.time, "sleep", lambda _: None)
    listener: Any = SimpleNamespace(accept=accept)
    waiting.append(node)
    with pytest.raises(SystemExit):
        head.serve(listener)

    assert servant.call_head(mpi.LineReader(ours)) == LINE
    assert [end.recv(1) for _, end in pairs[:2]] == [b"", b""]
    for _, end in pairs:
        end.close()


def test_a_master_port_that_is_taken_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, without a traceback."""
    head = make_node(tmp_path, monkeypatch, 0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        head._order["head"] = f"127.0.0.1:{other.getsockname()[1]}"

        assert head.run_head() == 1
        said = capfd.readouterr().err
        assert said == f"clusterctl: cannot listen on {head._order['head']}: Address already in use\n"


def test_mpirun_sees_no_allocation_of_slurm() -> None:
    """It would take its nodes from there; and one node's NIC is not that of all. What else there is stays."""
    kept = {"PATH": "/bin", "OMPI_MCA_pml": "ob1", "SLURMISH": "x"}
    step = {"SLURM_JOB_ID": "7", "SLURM_NODELIST": "gpu[01-02]", "SLURMD_NODENAME": "gpu01"}
    assert mpi.mpirun_environment({**kept, **step, "OMPI_MCA_btl_tcp_if_include": "eth9"}) == kept


def test_a_connection_that_node_0_closes_is_reported_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not as silence, also if node 0 is gone afterwards; a stop is no failure."""
    servant = make_node(tmp_path, monkeypatch, 1)
    with socket.create_server(("127.0.0.1", 0)) as head:
        servant._order["head"] = f"127.0.0.1:{head.getsockname()[1]}"

        def close_one() -> None:
            with head.accept()[0] as connection:
                connection.recv(1 << 14)  # else it would be reset
            head.close()

        threading.Thread(target=close_one).start()
        monkeypatch.setattr(mpi, "JOIN_LIMIT", 2.0)
        assert servant.run_servant() == 1

    said = capfd.readouterr().err
    assert said.startswith(
        f"clusterctl: no command line from mpirun on node 0 ({servant._order['head']}) in "
    )
    assert said.endswith(" s: the connection was closed\n")
    servant._stopping = True
    assert servant.run_servant() == -signal.SIGTERM
    assert capfd.readouterr().err == ""


def test_a_failure_that_found_no_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is there, and empty: mpirun's own code counts."""
    node = make_node(tmp_path, monkeypatch, 1)
    (tmp_path / "1/mpi/ended").touch()

    assert node.read_failure() == 0


def test_a_rank_has_torchs_variables_and_its_failure_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script that mpirun starts runs the node's own words, and writes to the node's own log."""
    node = make_node(tmp_path, monkeypatch, 1)
    (tmp_path / "1/0").mkdir()
    env = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PATH": "/bin:/usr/bin"}
    done = subprocess.run([tmp_path / "1/mpi/rank.sh"], env=env, check=False)

    assert done.returncode == 3
    assert (tmp_path / "1/0/stdout.log").read_text() == "3 of 4\n"
    assert node.read_failure() == 3


def test_a_stop_gives_a_rank_its_time_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM reaches its program at once, past the script that notes its end; without that end there is no return."""
    node = make_node(tmp_path, monkeypatch, 1)
    (tmp_path / "1/0").mkdir()
    saving = 'trap "sleep 0.3; echo saved; exit 0" TERM; echo up; while :; do sleep 0.02; done'
    node._order["argv"] = ["sh", "-c", saving]
    node._write_script()
    env = {"OMPI_COMM_WORLD_RANK": "2", "PATH": "/bin:/usr/bin"}
    with subprocess.Popen([tmp_path / "1/mpi/rank.sh"], env=env, start_new_session=True) as rank:
        log = tmp_path / "1/0/stdout.log"
        wait_until(lambda: log.exists() and log.read_text() == "up\n", "the rank runs")
        node._stopping = True
        node._stop_ranks()
        assert log.read_text() == "up\nsaved\n"

    assert rank.returncode == node.read_failure() == 0


def test_the_number_of_a_rank_that_has_ended_is_not_its_own_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of the account may have it; and a rank that was killed, script and all, is not waited for."""
    node = make_node(tmp_path, monkeypatch, 1)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        killed = subprocess.Popen(["true"], start_new_session=True)
        killed.wait()
        (tmp_path / "1/mpi/begun").write_text(f"{other.pid}\n{killed.pid}\n")
        (tmp_path / "1/mpi/ended").write_text(f"2 {other.pid} 0\n")
        node._stopping, waits = True, SimpleNamespace(monotonic=time.monotonic, sleep=pytest.fail)
        monkeypatch.setattr(mpi, "time", waits)
        try:
            node._stop_ranks()
            assert other.poll() is None
        finally:
            other.kill()


def test_the_relay_writes_a_command_line_as_a_whole(tmp_path: Path) -> None:
    """The host that mpirun names, and the words that a shell there would have got."""
    mpi.main(["--relay", str(tmp_path), "cc-node-1", "orted", '-mca ess "env"'])

    assert (tmp_path / "cc-node-1.orted").read_text() == 'orted -mca ess "env"'
