"""Why a run makes no progress: CC-HANG, which `diagnose` reports."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

RUN_AGAIN = "run it again after some seconds"

ENTRIES: Mapping[str, Entry] = {
    "CC-HANG-001": Entry(
        "error",
        "a rank is stopped",
        do="SIGSTOP, Ctrl-Z or a debugger has stopped the process. It continues after SIGCONT, or when the debugger detaches.",
        cases={
            "": Case("{ranks} is stopped by a signal; {waiting}", Same("$ kill -CONT {pid}")),
            "traced": Case(
                "{ranks} is stopped by a debugger; {waiting}", "detach the debugger from process {pid}"
            ),
        },
    ),
    "CC-HANG-002": Entry(
        "error",
        "a rank waits in the kernel for a file system or a device",
        do="The process is in state D: no signal can end it until the kernel gets an answer. Most often a network file system does not respond, else a disk or a driver.",
        cases={
            "": Case(
                "{ranks} waits in the kernel (state D, in {waits_in}), usually for a network file system; {waiting}",
                "see what the kernel reports: `clusterctl exec --nodes {node} -- 'dmesg | tail -30'`",
            )
        },
    ),
    "CC-HANG-003": Entry(
        "error",
        "a rank has failed, but its process does not exit",
        do="The rank wrote its traceback and then waits while the interpreter shuts down: for a thread that is not a daemon, or in a destructor that waits for other ranks. Fix the exception first.",
        cases={
            "": Case(
                "{ranks} has failed with {exception}, but its process does not exit; {waiting}",
                "read its traceback: `clusterctl logs --rank {number}`",
            )
        },
    ),
    "CC-HANG-004": Entry(
        "error",
        "a rank has not entered the collective that others wait in",
        do="Every rank of a process group must call the same collectives in the same order. Look at the line of the rank that is missing: does it wait for data, loop, or take another branch?",
        cases={
            "": Case(
                "{ranks} has not entered {operation}; it is at {where}; {waiting}",
                "all stacks: `clusterctl diagnose --stacks`; why this matters: `clusterctl explain CC-HANG-004`",
            ),
            "locked": Case(
                "{ranks} has not entered {operation}; C code holds the GIL at {where}; {waiting}",
                "look at the call on that line: a regular expression, or an extension that does not release the GIL",
            ),
            "ended": Case(
                "{ranks} has exited and will not enter {operation}; {waiting}",
                "give every rank the same number of steps, or use `torch.distributed.algorithms.join.Join`",
            ),
            "unreachable": Case(
                "no answer about {ranks} ({nodes}), for which others wait in {operation}; {waiting}",
                "check the node: `clusterctl check --nodes {nodes}`",
            ),
        },
    ),
    "CC-HANG-005": Entry(
        "error",
        "ranks are in different collectives",
        do="Operation, size and data type must be the same on all ranks of a process group, and ranks that share several groups must use them in the same order.",
        cases={
            "": Case(
                "{ranks} has entered {operation} at {where}, but {others} entered {usual} at {elsewhere}, as #{number} of group {group}",
                "make both lines call the same operation with the same shape and data type",
            ),
            "order": Case(
                "{ranks} waits in {operation} at {where}, and {others} in {usual} at {elsewhere}: each waits for the other",
                "use the process groups in the same order on all ranks",
            ),
        },
    ),
    "CC-HANG-006": Entry(
        "error",
        "all ranks are in the same collective, and it does not complete",
        do="The program is right so far: the network between the nodes or a GPU is the next suspect. `check --deep` tests both with small collectives; end the run first, or test other nodes.",
        cases={
            "": Case(
                "all ranks ({ranks}) have entered {operation} at {where}, and it has not completed for {duration}",
                "test the network and the GPUs: `clusterctl check --deep`",
            )
        },
    ),
    "CC-HANG-007": Entry(
        "warning",
        "a rank is at another line than most, and nothing is recorded",
        do="No rank waits in a collective that torch has recorded. Where one rank is at another line than most, look there first: a lock, a queue, a file, or a send without its receive.",
        cases={
            "": Case(
                "{ranks} is at {where}, while {others} are at {elsewhere}; no rank waits in a recorded collective",
                "compare all stacks: `clusterctl diagnose --stacks`",
            )
        },
    ),
    "CC-HANG-008": Entry(
        "warning",
        "a node does not answer",
        do="It is unknown what its ranks do. If the agent there is gone, the other nodes stop the run.",
        cases={
            "": Case(
                "{nodes} does not answer, and the other ranks do not show why there is no progress",
                "check the node: `clusterctl check --nodes {nodes}`",
            )
        },
    ),
    "CC-HANG-009": Entry(
        "info",
        "the ranks make progress",
        do="The last collective began within the usual interval of this run, so nothing hangs.",
        cases={"": Case("not hung: {ranks} make progress, the last collective began {duration} s ago")},
    ),
    "CC-HANG-010": Entry(
        "info",
        "nothing shows a hang",
        do="The ranks compute, load or start, or cannot be queried: with `diagnose: false` in the job, or without Python. Run it again after some seconds; if a rank is still at the same line, look there.",
        cases={
            "": Case(
                "no rank waits in a collective; {ranks} are at {where}, {busy} of {count} use a processor",
                RUN_AGAIN,
            ),
            "idle": Case(
                "no rank waits in a collective or uses a processor; {ranks} are at {where}", RUN_AGAIN
            ),
            "nothing": Case(
                "no stacks and no records: {reason}",
                "see the ranks and their last lines: `clusterctl status`",
            ),
        },
    ),
    "CC-HANG-011": Entry(
        "warning",
        "a rank arrives last in most collectives",
        do="All other ranks wait for it in each step. Usual reasons: its data loader or disk, another program on the node, a hot or slow processor. GPU time after the launch of a kernel is not included.",
        cases={
            "": Case(
                "{ranks} arrives last in {share} of {count} collectives, {delay} ms behind the median ({loss} of the time)",
                "compare the nodes: `clusterctl top`; see what the rank does: `clusterctl diagnose --stacks`",
            )
        },
    ),
    "CC-HANG-012": Entry(
        "info",
        "no rank is late in most collectives",
        do="By the times at which Python enters collectives no rank makes the others wait. GPU time after the launch of a kernel is not included.",
        cases={
            "": Case(
                "no rank is late: of {count} collectives {ranks} is last most often, in {share}, {delay} ms behind the median ({loss} of the time)"
            ),
            "nothing": Case(
                "the times of collectives cannot be compared: {reason}", "run it again after some steps"
            ),
            "clocks": Case(
                "the clocks of the nodes are not compared yet, or a node does not answer",
                "run it again after 20 seconds",
            ),
        },
    ),
    "CC-HANG-013": Entry(
        "error",
        "torchrun, the agent or the guardian of a node is halted, or torchrun does not exit",
        do="A halted process does nothing until it gets SIGCONT, or its debugger detaches: torchrun then does not notice that its ranks have ended, and the run does not end. Continue it on its node, or stop the run.",
        cases={
            "": Case(
                "{process} on {node} (pid {pid}) is halted by a signal or a debugger",
                "continue it: `clusterctl exec --nodes {node} -- kill -CONT {pid}`",
            ),
            "remains": Case(
                "all ranks have ended, and {process} on {node} (pid {pid}) has not exited",
                "stop the run: `clusterctl stop`",
            ),
        },
    ),
}
