"""Where the holder's process begins: it enters the backend's namespaces and builds the lab."""

from __future__ import annotations

import json
import os
import socket
import traceback
from pathlib import Path
from typing import NoReturn

from clusterctl.lab.holder import Holder
from clusterctl.lab.layout import LabPlan
from clusterctl.lab.netns.init import describe


def _holder(plan: LabPlan, leash: socket.socket) -> Holder:
    """Enter the backend's namespaces, if it has some; its modules are imported only when it is used."""
    if plan.backend == "inproc":
        from clusterctl.lab.inproc.backend import (  # noqa: PLC0415  (needs packages, which the other does without)
            InprocHolder,
        )

        return InprocHolder(plan, leash)
    from clusterctl.lab.netns.backend import NamespaceHolder, enter  # noqa: PLC0415  (the same)

    enter(plan)
    return NamespaceHolder(plan, leash)


def main(directory: str, leash_descriptor: str) -> NoReturn:
    """Leave the holder behind in a process of its own, and end."""
    leash = socket.socket(fileno=int(leash_descriptor))
    try:
        values = json.loads(Path(directory, "plan.json").read_text(encoding="utf-8"))
        holder = _holder(LabPlan.from_dict(values), leash)
        if os.fork() == 0:
            try:
                holder.run()
            finally:
                holder.end()
    except OSError as error:
        leash.send(describe("create namespaces", error))
    except Exception:
        traceback.print_exc()  # to the lab's holder.log
    finally:
        os._exit(0)
