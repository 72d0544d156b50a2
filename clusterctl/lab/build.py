"""Start a lab."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.errors import LabError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.lab.labs import DEFAULT_NAME, Lab, remove_dead, remove_lab
from clusterctl.lab.layout import (
    DEFAULT_NICS,
    SLURM_INVENTORY,
    LabNodePlan,
    LabPlan,
    plan_loopback_nodes,
    plan_nodes,
    render_known_hosts,
    render_lab_inventory,
    render_slurm_inventory,
    render_ssh_config,
)
from clusterctl.lab.linux import (
    TAG,
    find_account,
    find_program,
    namespaces_error,
    require_linux,
    visible_paths,
)
from clusterctl.lab.netns.init import SLURM_CONF
from clusterctl.lab.simulated_gpus import MAX_GPUS, write_smi
from clusterctl.lab.state import Process, hold_lock, identify, write_holder
from clusterctl.node_texts import translate_node_text
from clusterctl.translation import to_translate, tr

if TYPE_CHECKING:
    from clusterctl.lab.messages import NodeReport

_PORT = 2222
_OTHER_PORTS = range(20000, 30000)
_SUBNETS = range(1, 255)


@dataclass(frozen=True)
class LabOptions:
    """The options of `lab up`; a bound lab ends with this process.

    With `shared_home` all nodes have one home, as over NFS; with `gpus` each seems to have so many GPUs. With the
    backend `auto` a machine that cannot have namespaces gets a lab without them. With `slurm` a Slurm of their own runs
    on the nodes, which then share one home.
    """

    name: str = DEFAULT_NAME
    count: int = 3
    nics: Sequence[str] | None = None
    shared_home: bool = False
    bound: bool = False
    gpus: int = 0
    backend: str = "netns"
    slurm: bool = False

    def directory(self, state_dir: Path) -> str:
        """Where the lab's files go."""
        return os.path.abspath(state_dir / self.name)  # noqa: PTH100  (links in it are the caller's choice)


def plan_netns_lab(state_dir: Path, options: LabOptions) -> LabPlan:
    """A lab of namespaces; LabError if a program for it is missing."""
    return LabPlan(
        name=options.name,
        directory=options.directory(state_dir),
        account=find_account(),
        nodes=plan_nodes(options.count, options.nics or DEFAULT_NICS),
        python=sys.executable,
        visible=visible_paths(),
        sshd=find_program("sshd"),
        ip=find_program("ip"),
        shared_home=options.shared_home or options.slurm,
        gpus=options.gpus,
        slurmctld=find_program("slurmctld") if options.slurm else "",
        slurmd=find_program("slurmd") if options.slurm else "",
    )


def plan_inproc_lab(state_dir: Path, options: LabOptions) -> LabPlan:
    """A lab without namespaces, at addresses and a port where nothing listens yet."""
    nodes, port = _find_free_addresses(options.count)
    return LabPlan(
        name=options.name,
        directory=options.directory(state_dir),
        account=find_account(),
        nodes=nodes,
        python=sys.executable,
        visible=(),
        sshd="",
        ip="",
        shared_home=options.shared_home,
        gpus=options.gpus,
        backend="inproc",
        ssh_port=port,
    )


def _find_free_addresses(count: int) -> tuple[tuple[LabNodePlan, ...], int]:
    for port in (_PORT, *random.sample(_OTHER_PORTS, 20)):
        for subnet in _SUBNETS:
            nodes = plan_loopback_nodes(count, subnet)
            if _are_free((node.host for node in nodes), port):
                return nodes, port
            if not _are_free(["127.77.0.1"], port):
                break  # another program has this port at all addresses
    raise LabError("CC-LAB-007", "loopback")


def _are_free(hosts: Iterable[str], port: int) -> bool:
    with ExitStack() as stack:
        try:
            for host in hosts:
                stack.enter_context(socket.create_server((host, port)))
        except OSError:
            return False
    return True


MAX_NODES = 250
# a program is missing, forbidden, or the kernel lacks some
_NO_NAMESPACES = ("CC-LAB-001", "CC-LAB-002", "CC-LAB-007")
LIMITS_OF_INPROC = to_translate(
    "{reason}; the nodes are plain processes on loopback addresses instead: not isolated from each other,"
    " all on NIC lo, power cuts are simulated, and `kill -9` of the lab may leave processes behind"
)
_BUILD_SECONDS = 60.0
_SLURM_SECONDS = 60.0
_TRIES = 10  # where addresses are taken between their choice and their use
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_START_SCRIPT = """import sys
sys.path.insert(0, sys.argv[1])
from clusterctl.lab.{module} import Holder
Holder.start(*sys.argv[2:])"""


def up(
    state_dir: Path,
    options: LabOptions = LabOptions(),
    on_fallback: Callable[[str], None] = lambda _: None,
) -> Lab:
    """Build a lab and return when SSH answers on every node.

    `on_fallback` is called with the reason why there are no namespaces, and what cannot be shown without.
    """
    require_linux()
    _check_names(options.name, options.count, options.nics)
    _check_gpus(options.gpus)
    if options.backend != "inproc":
        try:
            return _start_lab(state_dir, lambda: plan_netns_lab(state_dir, options), options)
        except LabError as error:
            needs_namespaces = options.nics is not None or options.slurm
            if options.backend != "auto" or error.code not in _NO_NAMESPACES or needs_namespaces:
                raise
            on_fallback(tr(LIMITS_OF_INPROC, reason=error.message))
    elif options.nics is not None:
        raise LabError("CC-LAB-010", "nics")
    elif options.slurm:
        raise LabError("CC-LAB-010", "slurm")
    return _start_lab(state_dir, lambda: plan_inproc_lab(state_dir, options), options)


class _AddressTakenError(LabError):
    """Another lab, with another state directory, or another program took a planned address first."""


def _start_lab(state_dir: Path, make_plan: Callable[[], LabPlan], options: LabOptions) -> Lab:
    """Build a lab, again where an address was taken meanwhile: labs of other state directories do not wait for us."""
    for _ in range(_TRIES - 1):
        with suppress(_AddressTakenError):
            return _start_once(state_dir, make_plan, options)
    return _start_once(state_dir, make_plan, options)


def _start_once(state_dir: Path, make_plan: Callable[[], LabPlan], options: LabOptions) -> Lab:
    # `parents` alone would leave the first one open to our group
    for directory_to_make in (state_dir.parent, state_dir):
        directory_to_make.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_dead(state_dir)
    with hold_lock(state_dir):
        plan = make_plan()  # two labs must not find the same addresses free
        directory = _create_directory(plan)
        try:
            return _build(plan, directory, bound=options.bound)
        except BaseException:
            remove_lab(directory)
            raise


def _create_directory(plan: LabPlan) -> Path:
    """Make the lab's directory; plan.json marks it at once as ours to remove."""
    directory = Path(plan.directory)
    directory.mkdir(mode=0o700, exist_ok=True)
    if any(directory.iterdir()):
        raise LabError("CC-LAB-004", name=plan.name)
    (directory / "plan.json").write_text(json.dumps(plan.to_dict()), encoding="utf-8")
    return directory


def _check_gpus(gpus: int) -> None:
    if not 0 <= gpus <= MAX_GPUS:
        raise LabError("CC-LAB-003", "gpus", most=MAX_GPUS, gpus=gpus)


def _check_names(name: str, count: int, nics: Sequence[str] | None) -> None:
    if not _NAME.fullmatch(name):
        raise LabError("CC-LAB-003", "name", name=name)
    if not 1 <= count <= MAX_NODES:
        raise LabError("CC-LAB-003", "nodes", most=MAX_NODES, count=count)
    for item in nics or ():
        names = item.split("+")
        if len(set(names)) != len(names) or "lo" in names or not all(map(_NIC.fullmatch, names)):
            raise LabError("CC-LAB-003", "nics", item=item)
    if nics is not None and not nics:
        raise LabError("CC-LAB-003", "no-nic")


def _build(plan: LabPlan, directory: Path, *, bound: bool) -> Lab:
    for node in plan.nodes:
        (directory / "nodes" / node.name).mkdir(mode=0o700, parents=True)
        Path(plan.home_directory(node)).mkdir(mode=0o700, exist_ok=True)
        if plan.gpus and plan.backend == "inproc":
            write_smi(directory / "nodes" / node.name / "programs", node.name, plan.gpus)
    _make_keys(plan, directory)
    owner_socket, holder_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ExitStack() as cleanup:
        cleanup.callback(owner_socket.close)  # without its owner's socket the holder ends
        with holder_end:
            _spawn_holder(plan, directory, holder_end)
        holder = identify(_receive_report(owner_socket, directory)["host_pid"])
        cleanup.callback(holder.kill)
        _receive_report(owner_socket, directory)
        _write_files(plan, directory, holder)
        if plan.slurmd:
            _wait_for_slurm(Lab(directory, plan, holder))
        cleanup.pop_all()
    if bound:
        return Lab(directory, plan, holder, owner_socket)
    owner_socket.send(b"loose")
    owner_socket.close()
    return Lab(directory, plan, holder)


def _wait_for_slurm(lab: Lab) -> None:
    """Return when all nodes are idle; on a machine at rest that is after less than a second."""
    controller, deadline = lab.nodes[0], time.monotonic() + _SLURM_SECONDS
    command = ["env", f"SLURM_CONF={SLURM_CONF}", "sinfo", "-h", "-o", "%D", "-t", "idle"]
    while controller.run(command, check=False).stdout.strip() != str(len(lab.nodes)):
        if time.monotonic() > deadline:
            logs = "\n".join(_tail(log) for log in sorted(lab.directory.glob("nodes/*/sshd.log")))
            raise LabError("CC-LAB-007", "slurm", evidence=logs[-4000:], seconds=_SLURM_SECONDS)
        INTERRUPTS.sleep(0.05)


def _make_keys(plan: LabPlan, directory: Path) -> None:
    files = [directory / "id_ed25519", *(directory / "nodes" / node.name / "host_key" for node in plan.nodes)]
    comment = f"clusterctl-lab-{plan.name}"
    if plan.backend == "inproc":
        for file in files:
            _write_key(file, comment)
        return
    command = [find_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"]
    for keygen in [subprocess.Popen([*command, str(file)], stdin=subprocess.DEVNULL) for file in files]:
        if INTERRUPTS.call(keygen.wait) != 0:
            raise LabError("CC-LAB-007", "ssh-keygen", evidence=shlex.join(map(str, command)))


def _write_key(path: Path, comment: str) -> None:
    """Write an Ed25519 key pair as ssh-keygen does, which need not be installed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - cryptography costs 30 ms
        Ed25519PrivateKey,
    )
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - the same
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    path.with_name(path.name + ".pub").write_text(f"{public} {comment}\n", encoding="ascii")


def _spawn_holder(plan: LabPlan, directory: Path, holder_end: socket.socket) -> None:
    """Start the process that starts the holder, and wait for its end."""
    root = str(Path(__file__).parents[2])
    options = ["-I"] if plan.backend == "inproc" else ["-I", "-S"]  # only the first one needs packages
    tag = {TAG: str(directory)} if plan.backend == "inproc" else {}
    script = _START_SCRIPT.format(module="inproc" if plan.backend == "inproc" else "netns.backend")
    with (directory / "holder.log").open("wb") as log:
        starter = subprocess.Popen(
            [sys.executable, *options, "-c", script, root, str(directory), str(holder_end.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.defpath, **tag},  # the nodes must not see the caller's variables
            pass_fds=[holder_end.fileno()],
            start_new_session=True,
        )
    INTERRUPTS.call(starter.wait)


def _receive_report(owner_socket: socket.socket, directory: Path) -> NodeReport:
    owner_socket.settimeout(_BUILD_SECONDS)
    try:
        message = INTERRUPTS.call(lambda: owner_socket.recv(65536))
    except TimeoutError as error:
        raise LabError("CC-LAB-007", "time") from error
    if not message:
        raise LabError("CC-LAB-007", "holder", evidence=_tail(directory / "holder.log"))
    report: NodeReport = json.loads(message)
    if "error" in report:
        raise _start_error(str(report["error"]), report.get("errno"), directory)
    return report


def _start_error(reason: str, error_number: int | None, directory: Path) -> LabError:
    unsupported = error_number in (errno.ENOSPC, errno.EINVAL, errno.ENOSYS) and "(unshare)" in reason
    is_refused = unsupported or error_number in (errno.EPERM, errno.EACCES)
    if is_refused:
        return namespaces_error(translate_node_text(reason))
    logs = "\n".join(_tail(log) for log in sorted(directory.glob("nodes/*/sshd.log")))
    kind = _AddressTakenError if error_number == errno.EADDRINUSE else LabError
    return kind("CC-LAB-007", "start", evidence=logs[-4000:], reason=translate_node_text(reason))


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-2000:].strip()


def _write_files(plan: LabPlan, directory: Path, holder: Process) -> None:
    command = proxy_command(holder, user=plan.account.uid != 0) if plan.backend == "netns" else None
    keys = {
        node.name: (directory / "nodes" / node.name / "host_key.pub").read_text(encoding="ascii")
        for node in plan.nodes
    }
    texts = {
        "known_hosts": render_known_hosts(plan, keys),
        "ssh_config": render_ssh_config(plan, command),
        "inventory.yaml": render_lab_inventory(plan, command),
        **({SLURM_INVENTORY: render_slurm_inventory(plan, command)} if plan.slurmctld else {}),
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    write_holder(directory, holder, current_directory())


def current_directory() -> str:
    """The directory that we are in; empty if it has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def proxy_command(holder: Process, *, user: bool) -> str:
    """What SSH runs to reach an address inside the lab; %h and %p are filled in by SSH."""
    nsenter = [find_program("nsenter"), "-t", str(holder.pid)]
    nsenter += ["-U", "-n", "--preserve-credentials"] if user else ["-n"]
    relay = [sys.executable, "-I", "-S", str(Path(__file__).parent / "netns" / "relay.py")]
    return " ".join([shlex.join([*nsenter, *relay]).replace("%", "%%"), "%h", "%p"])
