"""Where the holder's process begins: it enters the backend's namespaces and builds the lab."""

from __future__ import annotations

import json
import os
import socket
import traceback
from pathlib import Path
from typing import NoReturn

from clusterctl.lab.holder import LabHolder
from clusterctl.lab.layout import LabPlan
from clusterctl.lab.netns.init import failure_message


def _make_holder(plan: LabPlan, owner_socket: socket.socket) -> LabHolder:
    """Enter the backend's namespaces, if it has some; its modules are imported only when it is used."""
    if plan.backend == "inproc":
        from clusterctl.lab.inproc.backend import (  # noqa: PLC0415  (needs packages, which the other does without)
            InprocHolder,
        )

        return InprocHolder(plan, owner_socket)
    from clusterctl.lab.netns.backend import NamespaceHolder, enter_lab_namespaces  # noqa: PLC0415  (the same)

    enter_lab_namespaces(plan)
    return NamespaceHolder(plan, owner_socket)


def main(directory: str, owner_descriptor: str) -> NoReturn:
    """Leave the holder behind in a process of its own, and end."""
    owner_socket = socket.socket(fileno=int(owner_descriptor))
    try:
        values = json.loads(Path(directory, "plan.json").read_text(encoding="utf-8"))
        holder = _make_holder(LabPlan.from_dict(values), owner_socket)
        if os.fork() == 0:
            try:
                holder.run()
            finally:
                holder.kill_nodes()
    except OSError as error:
        owner_socket.send(failure_message("create namespaces", error))
    except Exception:
        traceback.print_exc()  # to the lab's holder.log
    finally:
        os._exit(0)
