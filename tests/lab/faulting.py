"""How the faults of fault_table.py are made on a lab, and what is seen of each; for tests and the bench."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driving import COMMAND, environment
from fault_table import Fault
from victims import Struck
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab, LabNode, break_node, heal_node


def put(node: LabNode, path: str, content: str, mode: str = "644") -> None:
    """Write a file on a node."""
    node.run(["sh", "-c", f"mkdir -p $(dirname {path}); cat > {path}; chmod {mode} {path}"], input=content)


def background(node: LabNode, name: str, source: str) -> None:
    """Start a Python program on a node, and leave it running."""
    put(node, f"/tmp/{name}.py", source)
    node.run(["sh", "-c", f"setsid {sys.executable} /tmp/{name}.py >/tmp/{name}.log 2>&1 </dev/null &"])


def change_inventory(lab: Lab, folder: Path, change: Callable[[str], str]) -> Path:
    """Write a changed copy of the lab's inventory."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "inventory.yaml"
    text = lab.inventory.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    return path


SMALL = "/tmp/small"
SKEWED = "/tmp/skewed"
LATER = """
import os, runpy, sys, time
now, now_ns, LATER = time.time, time.time_ns, 60
time.time, time.time_ns = lambda: now() + LATER, lambda: now_ns() + LATER * 10**9

def later(look):
    def stat(*given, **named):
        found = look(*given, **named)
        times = {name: getattr(found, name) + LATER * (10**9 if name.endswith("_ns") else 1)
                 for name in dir(found) if name.startswith(("st_atime", "st_mtime", "st_ctime"))}
        rest = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return os.stat_result(tuple(found), {**rest, **times})
    return stat

os.stat, os.fstat, os.lstat = later(os.stat), later(os.fstat), later(os.lstat)
sys.executable, words = "{program}", sys.argv[1:]
while words[0] in ("-I", "-S", "-u", "-X"):
    del words[: 2 if words[0] == "-X" else 1]
if words[0] == "-c":
    sys.argv = ["-c", *words[2:]]
    sys.path[0] = ""
    exec(compile(words[1], "<string>", "exec"))
elif words[0] == "-m":
    sys.argv = words[1:]
    sys.path[0] = os.getcwd()
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
else:
    sys.argv = words
    sys.path[0] = os.path.dirname(words[0])
    runpy.run_path(words[0], run_name="__main__")
"""
STORE = """
import sys, time
from torch.distributed import TCPStore
store = TCPStore("0.0.0.0", {first}, is_master=True, wait_for_workers=False)
open("/tmp/stale.ready", "w").close()
time.sleep(3600)
"""
# Listens as soon as somebody holds a port without listening.
THIEF = """
import socket, time
open("/tmp/thief.ready", "w").close()
while True:
    time.sleep(0.005)
    for port in range({first}, {first} + 4):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                continue
            except OSError:
                pass
        thief = socket.socket()
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            thief.bind(("", port))
            thief.listen()
        except OSError:
            continue  # somebody listens
        open("/tmp/thief.port", "w").write(str(port))
        time.sleep(3600)
"""


@dataclass(frozen=True)
class Setting:
    """What must be there before the launch: an inventory, changes of the job, and how to undo it on the nodes."""

    inventory: Path | None = None
    undo: Callable[[], object] = lambda: None


def set_alone(lab: Lab, nodes: Sequence[LabNode], folder: Path) -> Setting:
    """Leave the other nodes out of the inventory: they may be dark when somebody comes back to the run."""
    return Setting(inventory_of(lab, nodes, folder))


def inventory_of(lab: Lab, nodes: Sequence[LabNode], folder: Path) -> Path:
    """Write the lab's inventory without the other nodes."""
    others = [f"{{name: {node.name}," for node in lab.nodes if node not in nodes]
    return change_inventory(
        lab,
        folder,
        lambda text: "".join(
            line for line in text.splitlines(keepends=True) if not any(name in line for name in others)
        ),
    )


def set_full_disk(_: Lab, nodes: Sequence[LabNode], __: Path) -> Setting:
    """Give node 1 a small file system beside."""
    script = "mkdir -p /tmp/full && mount -t tmpfs -o size=64k,mode=1777 tmpfs /tmp/full"
    nodes[1].run(["sh", "-c", script])
    return Setting(undo=lambda: nodes[1].run(["umount", "-l", "/tmp/full"], check=False))


def set_small_disk(lab: Lab, nodes: Sequence[LabNode], folder: Path) -> Setting:
    """Give node 1 a work directory on a small file system of its own."""
    node = nodes[1]
    node.run(["sh", "-c", f"mkdir -p {SMALL} && mount -t tmpfs -o size=100m,mode=1777 tmpfs {SMALL}"])
    wanted = f"{{name: {node.name},"
    path = change_inventory(
        lab, folder, lambda text: text.replace(wanted, f"{wanted} workdir: {SMALL}/work,")
    )
    return Setting(path, lambda: node.run(["umount", "-l", SMALL], check=False))


def set_clock(lab: Lab, nodes: Sequence[LabNode], folder: Path) -> Setting:
    """Let every Python that clusterctl starts on node 1 live a minute later."""
    node, program = nodes[1], f"{SKEWED}/python"
    put(node, f"{SKEWED}/later.py", LATER.replace("{program}", program))
    put(node, program, f'#!/bin/sh\nexec {sys.executable} {SKEWED}/later.py "$@"\n', "755")
    wanted = f"{{name: {node.name},"
    path = change_inventory(lab, folder, lambda text: text.replace(wanted, f"{wanted} python: {program},"))
    return Setting(path)


def set_ports(first: int, name: str, source: str) -> Callable[[Lab, Sequence[LabNode], Path], Setting]:
    """Give the inventory four ports, and node 0 a program that has to do with them."""

    def prepare(lab: Lab, nodes: Sequence[LabNode], folder: Path) -> Setting:
        background(nodes[0], name, source.replace("{first}", str(first)))
        path = change_inventory(lab, folder, lambda text: f"ports: {first}-{first + 3}\n{text}")
        ready = ["test", "-e", f"/tmp/{name}.ready"]
        wait_until(lambda: nodes[0].run(ready, check=False).returncode == 0, f"{name} is ready")
        return Setting(path)

    return prepare


SETTINGS: Mapping[str, Callable[[Lab, Sequence[LabNode], Path], Setting]] = {
    "ignores-term": set_alone,
    "launcher-killed": set_alone,
    "disk-full": set_full_disk,
    "workdir-full": set_small_disk,
    "clock-off": set_clock,
    "stale-store": set_ports(21000, "stale", STORE),
    "port-stolen": set_ports(21100, "thief", THIEF),
}


def fill_disk(run: Struck) -> None:
    """Fill node 1's work directory, and let its worker save there."""
    run.nodes[1].run(["sh", "-c", f"cat /dev/zero > {SMALL}/rest"], check=False)
    run.tell(run.nodes[1], 'open("model.pt", "wb").write(bytes(100_000))')


def fail_in_turn(run: Struck) -> None:
    """Let rank 1 fail, and rank 0 when that is over."""
    first = run.find(run.nodes[1], "worker").pid
    run.tell(run.nodes[1], RAISE)
    wait_until(
        lambda: first not in [process.pid for process in run.nodes[1].list_processes()], "rank 1 ended"
    )
    run.tell(run.nodes[0], "raise ValueError('later')")


def stop_with_grace(run: Struck) -> None:
    """Ask for the end as a user does; what counts is the time from when the nodes hear of it."""
    words = [*COMMAND, "-i", str(run.inventory), "stop", run.run, "--grace", "1"]
    run.asking = subprocess.Popen(
        words, env=environment(run.lab), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    home = Path(f"/proc/{run.nodes[1].read_state().pid}/root", run.lab.plan.account.home.lstrip("/"))
    wait_until(lambda: [*home.glob(f".clusterctl/runs/{run.run}/*/stop.json")], "the nodes heard of it")


def kill_launcher(run: Struck) -> None:
    """Kill the command that is attached."""
    run.launch.kill()


def signal_to(part: str, name: str, place: int = 1) -> Callable[[Struck], None]:
    """Send a signal to a part of the run on one node."""
    return lambda run: run.signal(run.nodes[place], part, name)


def order(code: str) -> Callable[[Struck], None]:
    """Let the worker on node 1 do something."""
    return lambda run: run.tell(run.nodes[1], code)


def cut(how: str, place: int = 1) -> Callable[[Struck], None]:
    """Break a node of the lab."""

    def strike(run: Struck) -> None:
        break_node(run.lab, run.nodes[place].name, how)

    return strike


def cut_and_mend(run: Struck) -> None:
    """Take a NIC down for five seconds, however long it takes to say so."""
    began = time.monotonic()
    cut("nic-down")(run)
    time.sleep(max(0.0, began + 5.0 - time.monotonic()))
    heal_node(run.lab, run.nodes[1].name)


RAISE = "raise ValueError('failed on purpose')"
STRIKES: dict[str, Callable[[Struck], None]] = {
    "worker-raises": order(RAISE),
    "worker-killed": signal_to("worker", "KILL"),
    "worker-segfault": order("import ctypes; ctypes.string_at(0)"),
    "worker-stopped": signal_to("worker", "STOP"),
    "torchrun-stopped": signal_to("torchrun", "STOP"),
    "torchrun-killed": signal_to("torchrun", "KILL"),
    "agent-killed": signal_to("agent", "KILL"),
    "hub-killed": signal_to("agent", "KILL", 0),
    "guardian-killed": signal_to("guardian", "KILL"),
    "agent-stopped": signal_to("agent", "STOP"),
    "guardian-stopped": signal_to("guardian", "STOP"),
    "power-off-node-0": cut("power", 0),
    "power-off": cut("power"),
    "nic-5s": cut_and_mend,
    "nic-down": cut("nic-down"),
    "sshd-killed": cut("sshd"),
    "launcher-killed": kill_launcher,
    "disk-full": order('open("/tmp/full/model.pt", "wb").write(bytes(100_000))'),
    "workdir-full": fill_disk,
    "clock-off": fail_in_turn,
    "ignores-term": stop_with_grace,
}


# ---- one fault from its blow to its end ----


@dataclass(frozen=True)
class Seen:
    """What a fault led to: seconds until the other nodes' ranks had ended, and until nothing at all was left there."""

    stopped: float | None
    seconds: float | None
    exit: int
    said: str
    left: Mapping[str, Sequence[str]]
    out: str


def observe(fault: Fault, run: Struck, limit: float = HANG) -> Seen:
    """Strike a settled run and see what comes of it."""
    node, began = run.nodes[fault.place], time.monotonic()
    traces = run.traces(without=[node])
    training = run.traces(without=[node], watchers=False)
    STRIKES.get(fault.name, lambda _: None)(run)
    began = began if fault.is_noticed_late else time.monotonic()  # a signal is sent at its end
    stopped = seconds = None
    if fault.within is None:
        see_it_borne(fault, run)
    else:
        wait_until(
            lambda: not any(map(os.path.exists, training)),
            f"{fault.name}: the others stopped",
            every=0.01,
        )
        stopped = time.monotonic() - began
        wait_until(
            lambda: not any(map(os.path.exists, traces)),
            f"{fault.name}: nothing left there",
            every=0.01,
        )
        seconds = time.monotonic() - began
    code, said = end_of(fault, run, limit)
    off = [node] if fault.name.startswith("power-off") else []
    deadline = time.monotonic() + HANG
    while (left := run.left(without=off)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return Seen(stopped, seconds, code, said, left, run.out)


def see_it_borne(fault: Fault, run: Struck) -> None:
    """See that all workers live on, and let them end well."""
    screen = fault.says[0].replace("{node}", run.nodes[fault.place].name)
    part, _, what = fault.name.partition("-")
    if what == "stopped":
        wait_until(lambda: screen in run.err, screen)
        if part != "guardian":  # its agent continues it at the end
            run.signal(run.nodes[fault.place], part, "CONT")
    time.sleep(0.5)
    for each in run.nodes:
        assert run.find(each, "worker"), f"{fault.name}: no worker on {each.name}"
    run.finish()


def end_of(fault: Fault, run: Struck, limit: float) -> tuple[int, str]:
    """Wait for the verdict where it is shown; gives the exit code and the screen."""
    if run.asking is not None:
        assert run.asking.wait(timeout=limit) == 0
    if fault.name != "launcher-killed":
        return run.ended(limit), run.err
    words = [*COMMAND, "-i", str(run.inventory), "attach", run.run]
    done = subprocess.run(
        words, env=environment(run.lab), capture_output=True, text=True, timeout=limit, check=False
    )
    return done.returncode, done.stderr
