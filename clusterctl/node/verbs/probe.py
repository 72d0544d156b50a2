"""The probe: what a node is, has and can reach, in one frame; it writes nothing and imports no torch.

Every question is asked in a thread of its own with a time limit of its own, so that one dead file system or
name server costs one answer and not the report. An answer that is missing reads `{"problem": "why"}`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Callable

from ...protocol.messages.facts import Clock, LockHolder
from ...protocol.messages.record import fields_of, to_json
from ..probe import gpu, network, python, system
from ..probe.nvidia_smi import find
from ..probe.questions import answer_all
from ..state.lock_holders import names_in_use, query_holders

if TYPE_CHECKING:
    from ...protocol.messages.verbs import FullProbeRequest
    from ..runtime.stream import Stream

LIMIT = 2.0  # seconds; a dead mount must not hold up the others
GPU_LIMIT = 7.5  # nvidia-smi has 5 s and then 2 s, and is killed then
GPU_LIMITS = {"gpus": GPU_LIMIT, "gpu_health": GPU_LIMIT + 0.5}


def run(request: FullProbeRequest, stream: Stream) -> None:
    """Answer a probe request with one frame `{"facts": {...}}`; what a test of the network needs is loaded after it."""
    received = time.time()
    stream.answer({"facts": gather(request, received)})
    if request.get("stay"):
        from ..diagnose.mesh import serve

        serve(stream)


def gather(request: FullProbeRequest, received: float) -> Any:
    """Return Facts as JSON, all questions asked at once; `received` is when the request arrived (Unix s)."""
    workdir = str(request.get("workdir") or "~/.clusterctl")
    setup = python.enter_environment(workdir, request.get("setup"))
    skip = request.get("skip") or ()
    # forked first: forking is safe only while there is one thread
    nccl = python.query_nccl_in_child() if "nccl" not in skip else lambda: None
    questions = _questions(request, workdir, nccl)
    asked = {name: questions[name] for name in questions if name not in skip}
    answers = answer_all(asked, GPU_LIMITS, LIMIT)
    answers["setup"] = setup
    answers["clock"] = Clock(received=received, answered=time.time())
    return to_json(answers)


def _lock_holders() -> list[LockHolder]:
    """Return who holds locks, without what only agents read of each other."""
    holders: list[dict[str, Any]] = [dict(holder) for holder in query_holders(names_in_use())]
    return [LockHolder(**{key: holder.get(key) for key in fields_of(LockHolder)}) for holder in holders]


def _questions(
    request: FullProbeRequest, workdir: str, nccl: Callable[[], Any]
) -> dict[str, Callable[[], Any]]:
    payload = str(request.get("payload") or "")
    peers = request.get("peers") or {}
    return {
        "gpus": gpu.gpus,
        "gpu_health": gpu.gpu_health,
        "locks": _lock_holders,
        "nccl": nccl,
        "torch": python.torch,
        "packages": python.packages,
        "installed": python.installed,
        "nics": network.nics,
        "routing": network.routing_table,
        "routes": lambda: network.routes(peers, LIMIT - 0.3),
        "address": lambda: network.resolve(request.get("ip") or request.get("host") or ""),
        "hostname": network.own_hostname,
        "ports": network.port_range,
        "workdir": lambda: system.workdir(workdir, payload),
        "workdir_disk": lambda: system.disk(workdir),
        "tmp_disk": lambda: system.disk("/tmp"),
        "shm_disk": lambda: system.disk("/dev/shm"),
        "home_disk": lambda: system.disk("~"),
        "python_disk": lambda: system.disk(sys.prefix),
        "shm_left": system.shared_memory,
        "checkpoint": lambda: system.checkpoint(workdir, request.get("job") or ""),
        "cgroup": system.cgroup,
        "text": system.text,
        "nccl_conf": system.nccl_conf,
        "interpreter": system.interpreter,
        "activate": python.activate,
        "platform": system.platform,
        "account": system.account,
        "machine": system.machine,
        "limits": system.limits,
        "environment": system.environment,
        "logind": system.logind,
        "programs": lambda: {name: find(name) or "" for name in ("mpirun", "orted")},
        "infiniband": network.infiniband,
        "gpudirect": network.gpudirect,
    }
