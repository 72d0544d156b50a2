"""What asking every node costs: `check` of N nodes against pdsh, clush, Ansible and parallel-ssh running `true`.

    python -m tests.bench check [-r ROUNDS] [--sizes 64 200] [--fan-out 64]

One sshd at all loopback addresses plays the nodes: every node is an address of its own. `check` asks for all facts,
judges them, and lets the nodes call each other (`no wire`: without that); the others only run `true`. On one machine
the servers share the cores with the client: the probe's work on the nodes is in our wall time, and client CPU is what
the nodes do not take part in.

pdsh and clush: apt install pdsh clustershell. Ansible: apt install ansible-core. parallel-ssh is no command but a
library: python -m venv /somewhere/pssh && /somewhere/pssh/bin/pip install parallel-ssh, then --pssh /somewhere/pssh.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from measuring import (
    Bar,
    Sample,
    Table,
    Way,
    alternate,
    compare,
    cpu_of,
    find_peers,
    options_for,
    report,
    time_commands,
    wall_of,
)
from servers import ME, Server, start_server

MAX_CPU = 15.0  # ms of the client per node
PSSH = (
    "import sys; from pssh.clients import ParallelSSHClient as C; "
    "c = C(sys.argv[4].split(','), user=sys.argv[1], port=int(sys.argv[2]), pkey=sys.argv[3], "
    "pool_size=int(sys.argv[5])); o = c.run_command('true'); c.join(o); "
    "sys.exit(any(one.exit_code for one in o))"
)


class Field:
    """Some addresses of one sshd, and the files by which each tool finds them."""

    def __init__(self, folder: Path, server: Server, count: int, fan_out: int) -> None:
        self.folder, self.server, self.fan_out = folder, server, fan_out
        self.hosts = [f"127.0.{1 + place // 200}.{1 + place % 200}" for place in range(count)]
        self.options = [
            *("-F", "none", "-i", str(server.client_key), "-p", str(server.port)),
            *("-o", f"UserKnownHostsFile={folder}/known", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
        ]
        (folder / "known").write_text(f"* {server.host_key}\n")
        self.inventory = folder / f"{count}.yaml"
        self.inventory.write_text(self._inventory())

    def _inventory(self) -> str:
        ssh = f"{{user: {ME}, port: {self.server.port}, key: {self.server.client_key}, "
        ssh += f"known_hosts: {self.folder}/known, config: none}}"
        nodes = "".join(f"  - {{host: {host}, name: n{place:03}}}\n" for place, host in enumerate(self.hosts))
        workdir = f"workdir: {self.folder}/work\n"
        return f"cluster: bench\nssh: {ssh}\npython: {sys.executable}\n{workdir}nodes:\n{nodes}"

    def check(self, *words: str) -> Sample:
        """Ask with clusterctl; 3, since many addresses of one machine are not fit for training."""
        command = [sys.executable, "-m", "clusterctl", "-q", "-i", str(self.inventory), "check", *words]
        return time_commands([command], codes=(0, 3), env=self._environment())

    def run_pdsh(self, program: str) -> Sample:
        """Let pdsh run `true`; it takes ssh's options from a variable."""
        command = [
            program,
            "-R",
            "ssh",
            "-f",
            str(self.fan_out),
            "-l",
            ME,
            "-w",
            ",".join(self.hosts),
            "true",
        ]
        return time_commands([command], env=self._environment(PDSH_SSH_ARGS_APPEND=" ".join(self.options)))

    def run_clush(self, program: str) -> Sample:
        """Let clush run `true`."""
        options = ["-o", " ".join(self.options), "-l", ME, "-f", str(self.fan_out)]
        return time_commands(
            [[program, *options, "-w", ",".join(self.hosts), "true"]], env=self._environment()
        )

    def run_ansible(self, program: str) -> Sample:
        """Let Ansible run `true` without Python on the node; each ssh is closed at the end, as the others do."""
        arguments = " ".join([*self.options, "-o", "ControlMaster=no"])
        options = [
            "-i",
            ",".join(self.hosts) + ",",
            "-u",
            ME,
            "-f",
            str(self.fan_out),
            "-m",
            "raw",
            "-a",
            "true",
        ]
        environment = self._environment(ANSIBLE_SSH_ARGS=arguments, ANSIBLE_HOST_KEY_CHECKING="True")
        return time_commands([[program, "all", *options]], env=environment)

    def run_pssh(self, python: str) -> Sample:
        """Let parallel-ssh run `true`; it checks no host key."""
        words = [
            ME,
            str(self.server.port),
            str(self.server.client_key),
            ",".join(self.hosts),
            str(self.fan_out),
        ]
        return time_commands([[python, "-c", PSSH, *words]], env=self._environment())

    def _environment(self, **more: str) -> Mapping[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "XDG_STATE_HOME": f"{self.folder}/state", **more}


def ways_of(field: Field, peers: Mapping[str, str]) -> list[Way]:
    """Make a way of everything that is installed."""
    runs: Mapping[str, Callable[[str], Sample]] = {
        "pdsh": field.run_pdsh,
        "clush": field.run_clush,
        "ansible": field.run_ansible,
        "parallel-ssh": field.run_pssh,
    }
    others = [Way(name, lambda run=runs[name], at=path: run(at)) for name, path in peers.items()]  # type: ignore[misc]  # a default binds the loop's value
    alone = Way("check, no wire", lambda: field.check("--skip", "NET-03*"))
    return [Way("check", field.check), alone, *others]


def measure(field: Field, peers: Mapping[str, str], rounds: int) -> tuple[Table, list[Bar]]:
    """Let all take turns at one size."""
    count = len(field.hosts)
    seen = alternate(ways_of(field, peers), rounds)
    per_node = cpu_of(seen["check"]) * 1000 / count
    bars = [Bar(f"{count} nodes: client CPU", per_node, MAX_CPU, "ms per node")]
    if "pdsh" in seen:
        bars.append(
            Bar(f"{count} nodes: wall", wall_of(seen["check"]) / wall_of(seen["pdsh"]), 1.0, "x pdsh")
        )
    note = f"{field.fan_out} at a time where it can be chosen; check: all facts, the others: `true`"
    against = "pdsh" if "pdsh" in seen else "check"
    return compare(f"{count} addresses of one sshd", seen, against=against, per=count, note=note), bars


def main() -> None:
    """Measure the sizes that were asked for."""
    options = options_for(__doc__, rounds=3)
    options.add_argument("--sizes", nargs="*", type=int, default=[64, 200], help="numbers of nodes")
    options.add_argument("--fan-out", type=int, default=64, help="connections at a time of the others: 64")
    options.add_argument(
        "--peers", nargs="*", default=["pdsh", "clush", "ansible"], help="whom to compare with"
    )
    options.add_argument("--pssh", metavar="VENV", help="a virtual environment that has parallel-ssh")
    asked = options.parse_args()
    peers = find_peers(*asked.peers)
    if asked.pssh:
        peers["parallel-ssh"] = f"{asked.pssh}/bin/python"
    tables, bars = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        server = start_server(folder / "sshd", "MaxStartups 1000", "AddressFamily inet", address="0.0.0.0")
        try:
            for size in asked.sizes:
                table, held = measure(Field(folder, server, size, asked.fan_out), peers, asked.rounds)
                tables.append(table)
                bars += held
        finally:
            server.stop()
    raise SystemExit(report("check", tables, bars, asked))


if __name__ == "__main__":
    main()
