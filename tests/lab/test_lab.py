"""The lab itself: real nodes that come, break, heal and go without a trace."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import HANG, wait_until

from clusterctl.cli.commands.lab import _describe_interrupted
from clusterctl.errors import LabError
from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode
from clusterctl.lab.linux import find_program
from clusterctl.lab.state import Process, hold_lock, identify

pytestmark = pytest.mark.usefixtures("namespaces")

ROOT = str(Path(__file__).parents[2])
KINDS = ("pid", "net", "mnt")
LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 9000))
connection, _ = server.accept()
connection.sendall(b"hello")
connection.recv(1)
"""


def namespace(pid: int | str, kind: str) -> str:
    """The name of the namespace of a kind that a process is in."""
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def namespaces(pid: int) -> set[str]:
    """The namespaces of a process that the machine itself is not in."""
    return {namespace(pid, kind) for kind in KINDS} - {namespace("self", kind) for kind in KINDS}


@dataclass(frozen=True)
class Census:
    """All that lived in a lab at one moment: its namespaces and its processes."""

    spaces: set[str]
    processes: list[Process]

    def extinct(self) -> bool:
        """Whether no such process lives, and no other one in these namespaces."""
        return not any(process.is_alive() for process in self.processes) and not inhabitants(self.spaces)


def census(*pids: int) -> Census:
    """Count who lives in the namespaces of these processes."""
    spaces = set().union(*(namespaces(pid) for pid in pids))
    return Census(spaces, [identify(pid) for pid in inhabitants(spaces)])


def census_of(lab: Lab) -> Census:
    """Count the holder, every node and all that runs there."""
    return census(lab.holder.pid, *(node.read_state().pid for node in lab.nodes))


def inhabitants(spaces: set[str]) -> list[int]:
    """The processes on this machine that live in one of the namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = {namespace(entry.name, kind) for kind in KINDS}
            except OSError:
                continue
            if links & spaces:
                found.append(int(entry.name))
    return found


def addresses(node: LabNode) -> dict[str, str]:
    """The IPv4 address of every NIC of a node."""
    entries = json.loads(node.run([find_program("ip"), "-j", "-4", "addr"]).stdout)
    return {entry["ifname"]: entry["addr_info"][0]["local"] for entry in entries}


def python_here(code: str, *words: str) -> list[str]:
    """The words that run Python code that may import clusterctl."""
    return ["env", f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-c", code, *words]


def connected(lab: Lab, here: str, there: str) -> tuple[subprocess.Popen[str], str]:
    """A process on `here` with an open connection to a listener on `there`, and what it read from it.

    A line on its standard input lets it look for a second whether more comes, or the end.
    """
    listener = lab.find_node(there)
    starter = threading.Thread(
        target=listener.run,
        args=([sys.executable, "-c", LISTEN, listener.plan.ip],),
        kwargs={"check": False, "timeout": HANG},
    )
    starter.start()
    code = f"""
import socket, sys, time
until = time.monotonic() + {HANG}
while time.monotonic() < until:
    try:
        connection = socket.create_connection(({listener.plan.ip!r}, 9000), 5)
        break
    except OSError:
        time.sleep(0.02)
print(connection.recv(5).decode(), flush=True)
sys.stdin.readline()
connection.settimeout(1)
try:
    print("ended", repr(connection.recv(1)), flush=True)
except OSError as error:
    print(type(error).__name__, flush=True)
"""
    words = lab.ssh_command(here, [lab.plan.python, "-c", shlex.quote(code)])
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_eight_nodes_answer(make_lab) -> None:
    """Every node of a larger lab lets OpenSSH in under its own name."""
    lab = make_lab(n=8)

    assert [lab.ssh(node.name, "hostname").strip() for node in lab.nodes] == [f"gpu0{i}" for i in range(1, 9)]


def test_names_nics_and_addresses(cluster) -> None:
    """Each node has its own NIC name, and its hostname means its training address everywhere."""
    assert [set(addresses(node)) - {"lo"} for node in cluster.nodes] == [{"enp65s0f0"}, {"ib0np0"}, {"eno2"}]
    for node in cluster.nodes:
        assert addresses(node)[node.plan.training_nic] == node.plan.ip
        assert cluster.ssh(node.name, "hostname", "-i").split() == [node.plan.ip]
        known = cluster.ssh("gpu01", "getent", "hosts", node.name)
        assert known.split() == [node.plan.ip, node.name]


def test_the_machine_outside_is_not_touched(make_lab) -> None:
    """A lab makes no link, mount or SSH file outside its own namespaces and directory."""
    links = subprocess.run([find_program("ip"), "link"], capture_output=True, check=True).stdout
    mounts = Path("/proc/self/mounts").read_text()
    lab = make_lab(n=2)
    lab.ssh("gpu01", "true")

    assert subprocess.run([find_program("ip"), "link"], capture_output=True, check=True).stdout == links
    assert Path("/proc/self/mounts").read_text() == mounts
    assert list(lab.home.iterdir()) == []
    assert lab.directory.stat().st_mode & 0o777 == 0o700


def test_first_nic_carries_ssh_and_last_one_training(make_lab) -> None:
    """Items of --nics go to the nodes in turn; `a+b` gives one node two networks."""
    from clusterctl.specs.inventory.parse import parse_inventory

    lab = make_lab(n=3, nics=["mgmt0+ib0", "eno2"])
    nodes = parse_inventory(lab.inventory.read_text(), str(lab.inventory)).nodes

    assert [node.nic for node in nodes] == [("ib0",), ("eno2",), ("ib0",)]
    assert [(node.host, node.ip) for node in nodes] == [
        ("10.77.1.1", "10.77.0.1"),
        ("10.77.0.2", "10.77.0.2"),
        ("10.77.1.3", "10.77.0.3"),
    ]
    assert addresses(lab.find_node("gpu01")) == {"lo": "127.0.0.1", "mgmt0": "10.77.1.1", "ib0": "10.77.0.1"}
    assert nodes[0].ssh.user == lab.plan.account.name
    assert nodes[0].python == sys.executable
    assert "nsenter" in (nodes[0].ssh.proxy_command or "")


def test_nodes_share_no_home_tmp_or_memory(cluster) -> None:
    """What one node writes to home, /tmp, /dev/shm or /run no other node sees, nor does the machine."""
    for place in ("$HOME", "/tmp", "/dev/shm"):
        cluster.ssh("gpu01", f"echo x > {place}/lab-mark")
        assert cluster.ssh("gpu01", f"ls {place}/lab-mark && rm {place}/lab-mark; ls {place}").split()[0]
        assert "lab-mark" not in cluster.ssh("gpu02", f"ls {place}")
        assert not Path(os.path.expandvars(place), "lab-mark").exists()
    cluster.find_node("gpu01").run(["sh", "-c", "echo 10.77.0.9 lab-mark >> /etc/hosts"])
    assert "lab-mark" in cluster.ssh("gpu01", "cat /etc/hosts")
    assert "lab-mark" not in cluster.ssh("gpu02", "cat /etc/hosts") + Path("/etc/hosts").read_text()


def test_nodes_may_share_one_home_as_over_nfs(make_lab) -> None:
    """With a shared home a file of one node is every node's; /tmp and the boot id stay the node's own."""
    lab = make_lab(n=2, shared_home=True)
    lab.ssh("gpu01", "echo one > ~/mark; touch /tmp/lab-mark")
    boots = {lab.ssh(node.name, "cat ~/mark /proc/sys/kernel/random/boot_id") for node in lab.nodes}

    assert {text.split()[0] for text in boots} == {"one"}
    assert len(boots) == 2
    assert "lab-mark" not in lab.ssh("gpu02", "ls /tmp")


def test_the_interpreter_works_in_the_nodes_and_cannot_be_changed(cluster) -> None:
    """The inventory's python runs there with its packages, read-only where the lab had to show it again."""
    python = cluster.plan.python

    assert cluster.ssh("gpu02", f"{python} -c 'import click; print(click.__name__)'") == "click\n"
    for path in cluster.plan.visible:
        if path.startswith(("/tmp/", cluster.plan.account.home + "/")):
            assert cluster.ssh("gpu02", f"touch {path}/mark 2>&1 || echo no").endswith("no\n")


def test_borrowed_packages_are_seen_too(make_lab, tmp_path, monkeypatch) -> None:
    """.venv may use another environment's torch; below /tmp the nodes' own /tmp would hide it."""
    folder = tmp_path / "env/lib/python3/site-packages"
    folder.mkdir(parents=True)
    (folder / "borrowed.py").write_text("print('here')\n")
    monkeypatch.syspath_prepend(str(folder))
    node = make_lab(n=1).nodes[0]

    assert node.run([sys.executable, f"{folder}/borrowed.py"]).stdout == "here\n"
    assert node.run(["touch", f"{folder}/more"], check=False).returncode == 1
    assert node.run(["ls", str(tmp_path)]).stdout == "env\n"


def test_sshd_has_the_limits_of_openssh(cluster) -> None:
    """A test bed with raised limits would hide what users meet."""
    words = [cluster.plan.sshd, "-T", "-f", "/run/lab/sshd_config"]
    said = cluster.find_node("gpu01").run(words).stdout.splitlines()

    assert {"maxstartups 10:30:100", "maxsessions 10", "usepam no", "passwordauthentication no"} <= set(said)


def test_processes_tells_tags_and_zombies_are_reaped(cluster) -> None:
    """A tagged orphan is seen with its run, and vanishes when it ends."""
    node = cluster.find_node("gpu03")
    cluster.ssh("gpu03", "CLUSTERCTL_RUN=r-1/gpu03/1 setsid sleep 1000 >/dev/null 2>&1 </dev/null & true")

    def seen() -> list[tuple[str, str]]:
        return [(process.command, process.run_id) for process in node.list_processes() if process.run_id]

    wait_until(lambda: seen() == [("sleep 1000", "r-1/gpu03/1")], "the process is seen")
    pid = next(process.pid for process in node.list_processes() if process.run_id)
    node.run(["kill", str(pid)])
    wait_until(lambda: pid not in [process.pid for process in node.list_processes()], "it ended")


def test_run_is_root_of_the_node_only(cluster) -> None:
    """Faults can be made inside a node: the MTU of its NIC changes there and nowhere else."""
    node = cluster.find_node("gpu02")
    ip = find_program("ip")
    node.run([ip, "link", "set", "ib0np0", "mtu", "1400"])
    try:
        assert "mtu 1400" in node.run([ip, "link", "show", "ib0np0"]).stdout
        assert "mtu 1400" not in cluster.find_node("gpu01").run([ip, "link"]).stdout
    finally:
        node.run([ip, "link", "set", "ib0np0", "mtu", "1500"])


def test_power_cut_says_no_goodbye_and_heal_brings_the_same_node_back(make_lab) -> None:
    """Peers of a dead node hear nothing; healed, it has its name, home, address, NIC, MAC and host key."""
    lab = make_lab(n=2)
    ip = find_program("ip")
    node = lab.find_node("gpu02")
    lab.ssh("gpu02", "echo mine > ~/kept; echo gone > /tmp/lost")
    before = node.run([ip, "-br", "link", "show", "ib0np0"]).stdout.split()[2]
    boot = lab.ssh("gpu02", "cat /proc/sys/kernel/random/boot_id")
    process, greeting = connected(lab, "gpu01", "gpu02")
    state = labs.break_node(lab, "gpu02", "power")
    heard = process.communicate("look\n")[0].strip()

    assert greeting == "hello"
    assert process.wait() == 0
    assert not state.is_on
    assert heard == "TimeoutError"
    assert node.list_processes() == []
    assert labs.heal_node(lab, "gpu02").nics == {"ib0np0": "up"}
    assert lab.ssh("gpu02", "hostname; cat ~/kept; ls /tmp").split()[:2] == ["gpu02", "mine"]
    assert "lost" not in lab.ssh("gpu02", "ls /tmp")
    assert node.run([ip, "-br", "link", "show", "ib0np0"]).stdout.split()[2] == before
    assert addresses(node)["ib0np0"] == "10.77.0.2"
    assert lab.ssh("gpu02", "cat /proc/sys/kernel/random/boot_id") != boot


def test_the_machine_outside_keeps_its_address_when_nodes_lose_power(make_lab) -> None:
    """No MAC address that the other nodes have learnt goes with a node: their SSH sessions would stall for minutes."""
    lab = make_lab(n=2)
    probe = f"{find_program('ip')} neigh show 10.77.0.254"
    before = lab.ssh("gpu01", probe).split()

    labs.break_node(lab, "gpu01", "power")
    labs.break_node(lab, "gpu02", "power")
    labs.heal_node(lab, "gpu01")
    after = lab.ssh("gpu01", probe).split()

    assert "lladdr" in before
    assert after[after.index("lladdr") + 1] == before[before.index("lladdr") + 1]


def test_a_node_whose_init_was_killed_is_off_and_heals(make_lab) -> None:
    """The lab notices a node that died without `break`."""
    lab = make_lab(n=2)
    os.kill(lab.find_node("gpu01").read_state().pid, signal.SIGKILL)

    wait_until(lambda: not lab.find_node("gpu01").read_state().is_on, "no power")
    assert labs.heal_node(lab, "gpu01").is_on
    assert lab.ssh("gpu01", "hostname") == "gpu01\n"


def test_nic_down_cuts_training_and_leaves_ssh(make_lab) -> None:
    """With two NICs only the training network goes; heal restores address and route."""
    lab = make_lab(n=2, nics=["mgmt0+ib0"])
    reach = "exec 3<>/dev/tcp/10.77.0.2/22 && echo yes || echo no"
    look = f"timeout {HANG:g} bash -c '{reach}' 2>&1 | tail -1"
    before = lab.ssh("gpu01", look)
    state = labs.break_node(lab, "gpu01", "nic-down")
    cut = lab.ssh("gpu01", look)
    healed = labs.heal_node(lab, "gpu01")

    assert (before, cut) == ("yes\n", "no\n")
    assert state.nics == {"mgmt0": "up", "ib0": "down"}
    assert healed.nics == {"mgmt0": "up", "ib0": "up"}
    assert lab.ssh("gpu01", look) == "yes\n"


def test_broken_sshd_refuses_while_open_sessions_live(make_lab) -> None:
    """Only the listening process dies; a session that is open goes on, and heal lets new ones in."""
    lab = make_lab(n=1)
    words = lab.ssh_command("gpu01", ["cat"])
    session = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert session.stdin is not None
    assert session.stdout is not None
    session.stdin.write("one\n")
    assert session.stdout.readline() == "one\n"
    state = labs.break_node(lab, "gpu01", "sshd")
    session.stdin.write("two\n")

    assert state.is_on
    assert state.sshd == 0
    assert session.stdout.readline() == "two\n"
    assert lab.run(lab.ssh_command("gpu01", ["true"]), check=False).returncode == 255
    assert labs.heal_node(lab, "gpu01").sshd > 0
    assert lab.ssh("gpu01", "hostname") == "gpu01\n"
    session.communicate()


def test_breaking_what_is_not_there_is_refused(cluster) -> None:
    """A wrong node or a wrong way to break is named with what exists."""
    with pytest.raises(LabError, match="has no node gpu9") as wrong_node:
        labs.break_node(cluster, "gpu9", "power")
    with pytest.raises(LabError, match="no fault fire"):
        labs.break_node(cluster, "gpu01", "fire")

    assert "gpu01, gpu02, gpu03" in wrong_node.value.fix


def test_several_labs_at_once(place) -> None:
    """Labs by name have the same addresses and know nothing of each other; one going leaves the other."""
    first = up(place, LabOptions(name="one", count=1, bound=True))
    second = up(place, LabOptions(name="two", count=2, bound=True))
    first.find_node("gpu01").run(["touch", f"{first.plan.account.home}/one"])

    assert [lab.name for lab in labs.list_running(place)] == ["one", "two"]
    assert "one" not in second.find_node("gpu01").run(["ls", second.plan.account.home]).stdout.split()
    assert labs.default_lab(labs.list_running(place)) is None
    with pytest.raises(LabError, match="2 labs are running: one, two"):
        labs.load(place)
    assert labs.down(place, ["one"]) == ["one"]
    assert labs.load(place).name == "two"
    assert labs.default_lab(labs.list_running(place)) == second
    assert labs.down(place) == ["two"]
    assert list(place.iterdir()) == []


def test_the_same_name_twice_is_refused_and_the_first_lab_lives(make_lab) -> None:
    """A second lab of one name changes nothing."""
    lab = make_lab(n=1)
    with pytest.raises(LabError, match="already exists"):
        up(lab.state_dir, LabOptions(name="lab", count=1))

    assert lab.ssh("gpu01", "hostname") == "gpu01\n"


@pytest.mark.parametrize(
    "wish",
    [
        *({"name": name} for name in ("", "../x", ".", "a b")),
        *({"count": count} for count in (-1, 0, 251)),
        *({"nics": nics} for nics in ([], [""], ["lo"], ["a+a"], ["a b"], ["sixteen-letters0"])),
    ],
    ids=str,
)
def test_words_that_make_no_lab(place, wish) -> None:
    """Names and numbers are judged before anything is made."""
    with pytest.raises(LabError) as refused:
        up(place, LabOptions(**wish))

    assert refused.value.code == "CC-LAB-003"
    assert refused.value.fix
    assert list(place.iterdir()) == []


def test_kill_of_the_holder_leaves_nothing(make_lab) -> None:
    """No process of the lab outlives its holder, not even one that ignores signals in its own session."""
    lab = make_lab(n=3)
    lab.ssh("gpu02", "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' >/dev/null 2>&1 </dev/null & true")
    node = lab.find_node("gpu02")
    wait_until(
        lambda: "sleep 1000" in [process.command for process in node.list_processes()], "it ignores signals"
    )
    before = census_of(lab)
    assert len(before.processes) >= 8
    os.kill(lab.holder.pid, signal.SIGKILL)

    wait_until(before.extinct, "all of the lab is gone")
    assert labs.list_running(lab.state_dir) == []
    assert labs.default_lab(labs.list_running(lab.state_dir)) is None


def test_down_leaves_nothing_and_may_be_repeated(place) -> None:
    """A detached lab outlives the call that made it, until down; a second down finds nothing."""
    code = """
import sys
from pathlib import Path
from clusterctl.lab.build import LabOptions, up
up(Path(sys.argv[1]), LabOptions(count=2))
"""
    subprocess.run(python_here(code, str(place)), check=True)
    lab = labs.load(place)
    before = census_of(lab)
    protected = lab.directory / "nodes" / "gpu01" / "home" / "closed"
    (protected / "inner").mkdir(parents=True)
    (protected / "inner" / "file").touch()
    protected.chmod(0o500)

    assert labs.down(place) == ["lab"]
    assert before.extinct()
    assert list(place.iterdir()) == []
    assert labs.down(place) == []


def test_a_dead_lab_is_recognised_and_its_name_is_free(place) -> None:
    """What a crash left behind is neither default nor in the way; status removes it."""
    lab = up(place, LabOptions(count=1))
    os.kill(lab.holder.pid, signal.SIGKILL)
    wait_until(lambda: labs.list_running(place) == [], "the lab is down")
    assert lab.directory.exists()
    again = up(place, LabOptions(count=1, bound=True))
    assert again.find_node("gpu01").read_state().is_on
    os.kill(again.holder.pid, signal.SIGKILL)
    wait_until(lambda: labs.list_running(place) == [], "the lab is down")

    assert labs.status(place) == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("change", [{"starttime": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}])
def test_another_process_with_the_holders_number_is_not_taken_for_it(place, change) -> None:
    """PID, start time and boot must all agree before a process counts as the holder."""
    lab = up(place, LabOptions(count=1, bound=True))
    file = lab.directory / "lab.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "holder": {**values["holder"], **change}}))

    assert labs.list_running(place) == []
    assert labs.down(place) == []
    assert lab.holder.is_alive()
    assert lab.holder.kill()


def test_a_process_that_was_gone_when_it_was_identified_is_not_alive() -> None:
    """No start time is not a start time that two dead processes share."""
    gone = subprocess.Popen(["true"])
    gone.wait()

    assert not identify(gone.pid).is_alive()


def test_ctrl_c_says_what_became_of_the_lab(place) -> None:
    """It runs, or some of its files are there, or nothing is: with the command that ends or removes the rest."""
    assert _describe_interrupted(place, ["walk"]) == "lab walk is not running and has left no files"
    up(place, LabOptions(name="walk", count=1))
    assert _describe_interrupted(place, ["walk"]) == (
        "lab walk is running; to stop it: clusterctl lab down --name walk"
    )
    labs.down(place, ["walk"])
    (place / "walk").mkdir()
    (place / "walk" / "plan.json").touch()
    assert "to remove its files: clusterctl lab down --name walk" in _describe_interrupted(place, ["walk"])


def test_the_command_that_ctrl_c_shows_removes_the_rest(place) -> None:
    """Also when the removal itself was interrupted; the rest of another lab is not this one's."""
    state_dir = place / "clusterctl" / "lab"
    half_removed = state_dir / ".removed-walk-0123abcd"
    half_removed.mkdir(parents=True)
    assert _describe_interrupted(state_dir, ["wal"]) == "lab wal is not running and has left no files"
    assert "to remove its files: clusterctl lab down --name walk" in _describe_interrupted(
        state_dir, ["walk"]
    )

    environment = {**os.environ, "XDG_STATE_HOME": str(place)}
    command = [sys.executable, "-m", "clusterctl", "lab", "down", "--name", "walk"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, half_removed.exists()) == (0, False), done.stderr


def test_an_interrupted_up_leaves_nothing_and_says_so(place) -> None:
    """Ctrl-C while it waits for another lab command."""
    state_dir = place / "clusterctl" / "lab"
    state_dir.mkdir(parents=True, mode=0o700)
    environment = {**os.environ, "XDG_STATE_HOME": str(place)}
    command = [sys.executable, "-m", "clusterctl", "lab", "up", "--name", "walk"]
    with hold_lock(state_dir):
        building = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: opens_below(building.pid, state_dir), "it waits for the lock")
            building.send_signal(signal.SIGINT)
            _, err = building.communicate(timeout=HANG)
        finally:
            building.kill()  # else it would build when the lock is free

    assert building.returncode == 130, err
    assert "lab walk is not running and has left no files" in err


def opens_below(pid: int, folder: Path) -> bool:
    """Whether a process has a file below a directory open."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            links.append(str(link.readlink()))
    return any(link.startswith(os.path.realpath(folder)) for link in links)


def test_an_unfinished_lab_is_swept_away(place) -> None:
    """A build that was killed midway leaves a directory that the next one removes."""
    (place / "lab" / "nodes").mkdir(parents=True)
    (place / "lab" / "plan.json").write_text("{}")
    foreign = place / "notes"
    foreign.mkdir()

    assert labs.status(place) == []
    assert not (place / "lab").exists()
    assert foreign.exists()


def test_a_bound_lab_dies_with_its_process(place) -> None:
    """kill -9 of the process that a lab is bound to ends the lab."""
    code = """
import sys
from pathlib import Path
from clusterctl.lab.build import LabOptions, up
lab = up(Path(sys.argv[1]), LabOptions(count=1, bound=True))
print(lab.holder.pid, flush=True)
sys.stdin.read()
"""
    words = python_here(code, str(place))
    owner = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    before = census(int(owner.stdout.readline()))
    assert before.processes
    owner.kill()
    owner.communicate()

    wait_until(before.extinct, "all of the lab is gone")


def test_the_relay_ends_when_its_client_is_killed(make_lab) -> None:
    """No proxy process stays behind for a node that fell silent."""
    lab = make_lab(n=1)
    words = lab.ssh_command("gpu01", ["sleep", "1000"])
    client = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    net, pids = (namespace(lab.holder.pid, kind) for kind in ("net", "pid"))

    def relays() -> set[int]:
        return set(inhabitants({net})) - set(inhabitants({pids}))

    wait_until(
        lambda: len(relays()) == 1 and bool(lab.find_node("gpu01").list_processes()),
        "one relay, and what it runs",
    )
    labs.break_node(lab, "gpu01", "power")
    client.kill()
    client.wait()

    wait_until(lambda: not relays(), "the relay ended")


def test_an_ordinary_user_has_a_lab_too(make_lab, ordinary_user) -> None:
    """Without any right: own address, name, home, terminal, and root of the node for faults only."""
    lab = make_lab(n=2, nics=["ib0np0", "eno2"], user=ordinary_user)
    uid = str(lab.plan.account.uid)

    assert uid != "0"
    assert lab.ssh("gpu02", "id -u; hostname; hostname -i").split() == [uid, "gpu02", "10.77.0.2"]
    assert lab.ssh("gpu01", "echo x > ~/mine && cat ~/mine && pwd").split() == ["x", lab.plan.account.home]
    assert lab.ssh("gpu01", f"{lab.plan.python} -c 'import click; print(click.__name__)'") == "click\n"
    terminal = [*lab.ssh_command("gpu01")[:3], "-tt", "gpu01", "tty"]
    assert lab.run(terminal).stdout.startswith("/dev/pts/")
    assert lab.find_node("gpu01").run(["id", "-u"]).stdout == "0\n"
    lab.ssh("gpu01", "CLUSTERCTL_RUN=r-2/gpu01/1 setsid sleep 1000 >/dev/null 2>&1 </dev/null & true")
    node = lab.find_node("gpu01")
    wait_until(
        lambda: [p.run_id for p in node.list_processes() if p.run_id] == ["r-2/gpu01/1"],
        "its process is seen",
    )
    for how in labs.BREAKS:
        labs.break_node(lab, "gpu02", how)
        labs.heal_node(lab, "gpu02")
        assert lab.ssh("gpu02", "hostname") == "gpu02\n"
    before = census_of(lab)
    os.kill(lab.holder.pid, signal.SIGKILL)
    wait_until(before.extinct, "all of the lab is gone")


def attempt(place: Path, *before: str) -> list[str]:
    """Try to build a lab in a process started by the words `before`; returns what it said."""
    code = """
import sys
from pathlib import Path
from clusterctl.cli.commands.lab import _describe_interrupted
from clusterctl.errors import LabError
from clusterctl.lab.build import LabOptions, up
try:
    up(Path(sys.argv[1]), LabOptions(count=2))
    print("up")
except LabError as error:
    print(error.code, error.message, error.fix, sep="\\n")
"""
    words = [*before, *python_here(code, str(place))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_forbidden_namespaces_are_told_with_the_remedy(place) -> None:
    """Where the machine says no, there is a reason, a way out, and no half-built lab."""
    if os.geteuid() == 0:
        said = attempt(place, find_program("setpriv"), "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    else:
        ids = f"--map-user={os.geteuid()} --map-group={os.getegid()}"
        limit = f'echo 1 > /proc/sys/user/max_user_namespaces && exec unshare -U {ids} "$@"'
        said = attempt(place, "unshare", "-Ur", "sh", "-c", limit, "sh")

    assert said[0] == "CC-LAB-002"
    assert "does not allow the lab's namespaces" in said[1]
    assert said[2]
    assert list(place.iterdir()) == []


def test_a_missing_sshd_is_told_with_the_package(place) -> None:
    """The remedy is one line that can be typed."""
    hide = f'mount --bind /dev/null {find_program("sshd")} && exec "$@"'
    said = attempt(place, "unshare", "-rm", "sh", "-c", hide, "sh")

    assert said == [
        "CC-LAB-001",
        "the lab needs `sshd`, which is not installed",
        "sudo apt-get install openssh-server",
    ]
    assert list(place.iterdir()) == []


def test_a_lab_in_a_long_and_odd_place(place) -> None:
    """Neither spaces nor more letters than a socket's path may have get in the way."""
    lab = up(place / ("a b%c " * 8) / ("x" * 90), LabOptions(count=1, bound=True))
    done = subprocess.run(lab.ssh_command("gpu01", ["hostname"]), capture_output=True, text=True, check=False)

    assert done.stdout == "gpu01\n", done.stderr
    assert labs.break_node(lab, "gpu01", "sshd").sshd == 0
    assert lab.holder.kill()


def relay(lab: Lab, host: str, port: int) -> str:
    """The proxy command of the lab's inventory as SSH would run it."""
    words = lab.inventory.read_text().split('proxy_command: "')[1].split('"')[0]
    return words.replace("%h", host).replace("%p", str(port))


def test_the_relay_passes_ends_of_streams_on(cluster) -> None:
    """A peer that reads to the end before it answers gets the end, and all its answer comes back."""
    count = """
import socket
connection, _ = socket.create_server(("10.77.0.1", 9000)).accept()
size = 0
while data := connection.recv(65536):
    size += len(data)
connection.sendall(b"x" * size + b"!")
"""
    node = cluster.find_node("gpu01")
    peer = threading.Thread(target=node.run, args=([sys.executable, "-c", count],), kwargs={"timeout": HANG})
    peer.start()
    wait_until(lambda: ":2328 " in node.run(["cat", "/proc/net/tcp"]).stdout, "its port")
    sent = "y" * 3_000_000
    command = relay(cluster, "10.77.0.1", 9000)
    done = subprocess.run(
        ["sh", "-c", command], input=sent, capture_output=True, text=True, timeout=HANG, check=True
    )
    peer.join()

    assert done.stdout == "x" * len(sent) + "!"


def test_a_closed_port_is_refused_through_the_relay(cluster) -> None:
    """The proxy command says why it cannot connect, and its exit tells the client at once."""
    command = relay(cluster, "10.77.0.1", 9)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=HANG, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "Connection refused" in done.stderr


def test_a_lab_of_another_version_can_be_ended(place: Path) -> None:
    """A plan that this version cannot read hides the lab, never ends it by itself, and `down` still ends it."""
    lab = up(place, LabOptions(name="old", count=1, bound=True))
    plan = lab.directory / "plan.json"
    plan.write_text(plan.read_text(encoding="utf-8").replace('"account"', '"owner"'), encoding="utf-8")

    labs.remove_dead(place)

    assert lab.holder.is_alive()
    assert labs.list_running(place) == []
    assert labs.down(place, ["old"]) == ["old"]
    assert not lab.holder.is_alive()


def test_with_several_labs_one_must_be_named(place: Path) -> None:
    """Breaking a node of the wrong lab is no accident that may happen; only the inventory has a default."""
    kept = [up(place, LabOptions(name=name, count=1, bound=True)) for name in ("lab", "other")]

    with pytest.raises(LabError, match="2 labs are running: lab, other"):
        labs.load(place)
    assert labs.load(place, "other").name == "other"
    chosen = labs.default_lab(labs.list_running(place))
    assert chosen is not None and chosen.name == kept[0].name == "lab"
    labs.down(place)
