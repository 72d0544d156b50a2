"""What the way in which a silent rank ended tells, by signal, and ends that only a comparison shows."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from clusterctl.plans.symptoms.symptom import Symptom

BY_SIGNAL: Mapping[int, Symptom] = {
    signal.SIGKILL: Symptom(
        "CC-JOB-041",
        "",
        "killed from outside",
        "Who is killed so cannot say anything. It was a person, a batch system, a watchdog, or the kernel for want "
        "of memory: then its log says so.",
        'clusterctl exec --nodes {node} -- sh -c \'dmesg -T | grep -iE "out of memory|oom" | tail -3; free '
        "-h'",
    ),
    signal.SIGSEGV: Symptom(
        "CC-JOB-042",
        "",
        "a segmentation fault: compiled code read where it must not",
        "Mostly an extension built for another torch or CUDA; at the start of NCCL also ulimit -s "
        "unlimited. With "
        "PYTHONFAULTHANDLER the line of Python is shown.",
        "clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
        see="CC-SYS-008",
    ),
    signal.SIGBUS: Symptom(
        "CC-JOB-043",
        "",
        "a bus error: a file that was mapped into memory lost its ground",
        "A full /dev/shm, a file that was truncated while it was read, or a network file system that failed.",
        "clusterctl exec --nodes {node} -- df -h /dev/shm",
        see="CC-SYS-004",
    ),
    signal.SIGABRT: Symptom(
        "CC-JOB-044",
        "",
        "compiled code gave up",
        "Its reason stands in the last lines before, often after `what():`. With PYTHONFAULTHANDLER the line of Python "
        "is shown. `terminate called without an active exception` after the script's last line: call "
        "torch.distributed.destroy_process_group() before the script ends.",
        "clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
    ),
    signal.SIGTERM: Symptom(
        "CC-JOB-045",
        "",
        "asked to end by somebody else",
        "Not by clusterctl: a person, a batch system, systemd at a logout, or a machine that is shut down.",
        "clusterctl exec --nodes {node} -- sh -c 'uptime; journalctl -n 20 --no-pager'",
        see="CC-SYS-009",
    ),
    signal.SIGILL: Symptom(
        "CC-JOB-046",
        "",
        "this processor does not know an instruction",
        "A library was built for a newer processor than this node has.",
        "clusterctl exec -- sh -c 'grep -m1 \"model name\" /proc/cpuinfo'",
    ),
}
STARVED = Symptom(
    "CC-JOB-040",
    "",
    "the kernel killed it because memory ran out",
    "The node's count of such kills rose while the rank lived. The node's own memory, or what a cgroup or "
    "container grants: fewer data loader workers, smaller batches on the CPU, a higher limit.",
    "clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg -T | grep -iE \"out of memory|oom\" | tail -3'",
)
ENDED_EARLY = Symptom(
    "CC-JOB-053",
    "",
    "it left without an error while the others still needed it",
    "The ranks do not do the same number of steps: uneven data, a condition on the rank, an early return. "
    "join() of "
    "torch.distributed.algorithms, drop_last=True, or a barrier at the end.",
    "clusterctl logs {run} --tail 5",
)
