"""The probe: what a node is, has and can reach, told in one frame; it writes nothing and imports no torch.

Every question is asked in a thread of its own with a time limit of its own, so that one dead file system or
name server costs one answer and not the report. An answer that is missing reads `{"problem": "why"}`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Callable

from . import (
    probe_activate,
    probe_files,
    probe_gpu,
    probe_nics,
    probe_packages,
    probe_rdma,
    probe_room,
    probe_routes,
    probe_system,
    probe_torch,
)
from .holders import ask_holders, names_in_use
from .probe_ask import ask_all
from .smi import find

if TYPE_CHECKING:
    from .wire import Stream

LIMIT = 2.0  # seconds; generous for a busy node, short enough that a dead mount does not hold up the others
GPU_LIMIT = 7.5  # nvidia-smi has 5 s and then 2 s, and is killed then
GPU_LIMITS = {"gpus": GPU_LIMIT, "gpu_health": GPU_LIMIT + 0.5}


def run(request: dict[str, Any], stream: Stream) -> None:
    """Answer a probe request with one frame `{"facts": {...}}`."""
    received = time.time()
    stream.send({"facts": gather(request, received)})
    if request.get("stay"):
        from .mesh import serve  # when the facts are on their way: it loads what most probes never need

        serve(stream)


def gather(request: dict[str, Any], received: float) -> dict[str, Any]:
    """Ask all questions at once; `received` is this node's time of the request's arrival (Unix s)."""
    setup = _enter_setup(request)
    nccl = probe_torch.ask_nccl_in_child()  # forked first: forking is safe only while there is one thread
    answers = ask_all(_questions(request, nccl), GPU_LIMITS, LIMIT)
    answers["setup"] = setup
    answers["clock"] = {"received": received, "answered": time.time()}
    return answers


def _enter_setup(request: dict[str, Any]) -> dict[str, Any] | None:
    """Look from now on into the environment that the job's `setup` makes, if it has one and that is here."""
    if not request.get("setup"):
        return None
    from .probe_setup import enter

    return enter(str(request.get("workdir") or "~/.clusterctl"), request["setup"])


def _gpu_health() -> dict[str, Any] | None:
    if find("nvidia-smi") is None:
        return None
    from .probe_gpu_health import gpu_health

    return gpu_health()


def _questions(request: dict[str, Any], nccl: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    workdir = str(request.get("workdir") or "~/.clusterctl")
    payload = str(request.get("payload") or "")
    peers = request.get("peers") or {}
    return {
        "gpus": probe_gpu.gpus,
        "gpu_health": _gpu_health,
        "locks": lambda: ask_holders(names_in_use()),
        "nccl": nccl,
        "torch": probe_torch.torch,
        "packages": probe_torch.packages,
        "installed": probe_packages.installed,
        "nics": probe_nics.nics,
        "routing": probe_routes.routing_table,
        "routes": lambda: probe_routes.routes(peers, LIMIT - 0.3),
        "address": lambda: probe_routes.resolve(request.get("ip") or request.get("host") or ""),
        "hostname": probe_routes.own_hostname,
        "ports": probe_routes.port_range,
        "workdir": lambda: probe_files.workdir(workdir, payload),
        "workdir_disk": lambda: probe_files.disk(workdir),
        "tmp_disk": lambda: probe_files.disk("/tmp"),
        "shm_disk": lambda: probe_files.disk("/dev/shm"),
        "home_disk": lambda: probe_files.disk("~"),
        "python_disk": lambda: probe_files.disk(sys.prefix),
        "shm_left": probe_room.shared_memory,
        "cgroup": probe_room.cgroup,
        "text": probe_room.text,
        "nccl_conf": probe_files.nccl_conf,
        "interpreter": probe_system.interpreter,
        "activate": probe_activate.activate,
        "platform": probe_system.platform,
        "account": probe_system.account,
        "machine": probe_system.machine,
        "limits": probe_system.limits,
        "environment": probe_system.environment,
        "logind": probe_system.logind,
        "infiniband": probe_rdma.infiniband,
        "gpudirect": probe_rdma.gpudirect,
    }
