"""The lab, and bugs: CC-LAB, CC-BUG."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

NO_SUCH_LAB = "no lab with the name {name} is running"

ENTRIES: Mapping[str, Entry] = {
    "CC-LAB-001": Entry(
        "error",
        "a program that the lab needs is missing; the message shows its package",
        do="Install the package that is shown",
        cases={
            "system": Case(
                "the lab needs Linux, this is {system}", "use a Linux machine: jobs run only on Linux"
            ),
            "": Case(
                "the lab needs `{name}`, which is not installed", Same("sudo apt-get install {package}")
            ),
        },
    ),
    "CC-LAB-002": Entry(
        "error",
        "this machine does not allow the lab's namespaces; the reason and the fix are shown",
        do="Use `lab up --backend inproc`, or run the command that is shown",
        cases={
            "apparmor": Case(
                "this machine does not allow the lab's namespaces: AppArmor restricts user namespaces",
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (or run the lab as root)",
            ),
            "off": Case(
                "this machine does not allow the lab's namespaces: user namespaces are disabled",
                Same("sudo sysctl -w kernel.unprivileged_userns_clone=1"),
            ),
            "limit": Case(
                "this machine does not allow the lab's namespaces: user namespaces are limited to 0",
                Same("sudo sysctl -w user.max_user_namespaces=15000"),
            ),
            "container": Case(
                "this machine does not allow the lab's namespaces: it is a container without the required privileges",
                "start the container with `docker run --privileged`",
            ),
            "": Case(
                "this machine does not allow the lab's namespaces: the kernel or its security module refused",
                "run the lab as root, or on another Linux machine",
            ),
        },
    ),
    "CC-LAB-003": Entry(
        "error",
        "a number, a name or a kind of fault that the lab does not support",
        do="The message lists the allowed values",
        cases={
            "gpus": Case(
                "a node of a lab has 0 to {most} GPUs, not {gpus}",
                "clusterctl lab up --gpus 2, or another number up to {most}",
            ),
            "name": Case("{name!r} is not a valid name for a lab", "use letters, digits, dots and dashes"),
            "nodes": Case(
                "a lab has 1 to {most} nodes, not {count}",
                "clusterctl lab up -n 3, or another number up to {most}",
            ),
            "no-nic": Case(
                "a lab needs the name of a NIC", "--nics eth0, or one for each node: --nics ib0,eno1"
            ),
            "nics": Case(
                "{item!r} is not a valid list of NIC names",
                "1 to 15 letters, digits, dots and dashes each; a+b gives one node two",
            ),
            "break": Case("a lab node has no fault {break_kind}", "use one of: {names}"),
        },
    ),
    "CC-LAB-004": Entry(
        "error",
        "a lab of this name exists already",
        do="Run `lab down` first, or choose another `--name`",
        cases={
            "": Case(
                "a lab with the name {name} already exists",
                "use it: clusterctl --lab {name} check; or another one: clusterctl lab up --name NAME; or end it: clusterctl lab down --name {name}",
            ),
        },
    ),
    "CC-LAB-005": Entry(
        "error",
        "no such lab is running, or several are: choose one with `--name`",
        do="`lab status` lists them; choose one with `--name`",
        cases={
            "no-such": Case(NO_SUCH_LAB, "running: {running}"),
            "none": Case(NO_SUCH_LAB, "no lab is running: nothing to stop"),
            "several": Case("{count} labs are running: {names}", "choose one, for example: --name {name}"),
            "none-running": Case("no lab is running", Same("clusterctl lab up")),
            "not-running": Case(NO_SUCH_LAB, Same("clusterctl lab up --name {name}")),
            "others-running": Case(NO_SUCH_LAB, "running: {names}; or clusterctl lab up --name {name}"),
        },
    ),
    "CC-LAB-006": Entry(
        "error",
        "the lab has no such node",
        do="`lab status` lists the nodes",
        cases={
            "": Case("the lab {name} has no node {machine}", "its nodes: {names}"),
        },
    ),
    "CC-LAB-007": Entry(
        "error",
        "a lab operation failed, or the lab did not start",
        do="The reason is shown; run `lab down --all`, then try again",
        cases={
            "loopback": Case("no loopback address is free for the lab"),
            "start": Case("the lab did not start: {reason}"),
            "slurm": Case("Slurm did not start on all nodes within {seconds:g} s"),
            "holder": Case("the lab's supervisor process exited"),
            "ssh-keygen": Case("ssh-keygen failed"),
            "time": Case("the lab did not start in time"),
            "": Case("the lab could not {action}: {reason}"),
        },
    ),
    "CC-LAB-008": Entry(
        "error",
        "the lab does not respond or does not stop",
        do="Run `lab down --all`",
        cases={
            "end": Case("the lab {name} does not stop", "check process {pid}: ps {pid}"),
            "": Case("the lab {name} does not respond: {reason}", Same("clusterctl lab down --name {name}")),
        },
    ),
    "CC-LAB-009": Entry(
        "error",
        "the node is powered off",
        do="Run `lab heal NODE`",
        cases={
            "": Case("{name} is powered off", Same("clusterctl lab heal {name}")),
        },
    ),
    "CC-LAB-010": Entry(
        "error",
        "a lab without namespaces does not support this: its nodes have no NICs of their own",
        do="Use a lab with namespaces, see [a practice cluster](../start.md#no-machines-yet-a-practice-cluster)",
        cases={
            "nics": Case(
                "nodes without namespaces have no NICs of their own", "remove --nics, or use --backend netns"
            ),
            "slurm": Case(
                "Slurm needs nodes with namespaces: without them all nodes are one machine",
                "remove --slurm, or use --backend netns",
            ),
            "": Case(
                "{name} has no NIC of its own that could go down: all nodes of this lab share lo",
                "a lab with namespaces supports it: clusterctl lab up --backend netns",
            ),
        },
    ),
    "CC-BUG-001": Entry(
        "error",
        "a bug in clusterctl",
        what="Exit code 70; the message shows a file with the details. Please report it",
        do="The message shows a file with the details: [please report it](../../../CONTRIBUTING.md#reporting-a-bug)",
        cases={
            "": Case("a bug in clusterctl: {message}", "please report it with the file {file}"),
        },
    ),
}
