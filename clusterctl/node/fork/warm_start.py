"""The verb `start`: guardian and agent of a run through the node's warm server."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Tuple

from .inherited import read_inherited
from .warm_client import query, socket_folder
from .warm_messages import pack_variables


def start_from_server(
    workdir: str, node: str, rundir: str, argv: List[str], env: Dict[str, str], descriptors: Tuple[int, int]
) -> Optional[str]:
    """Have them started; returns why they were not, None without a server."""
    answer = query(
        workdir,
        node,
        {
            "do": "start",
            "argv": argv,
            "rundir": rundir,
            "env": pack_variables(env),
            "cwd": os.getcwd(),
            "inherited": read_inherited(),
        },
        descriptors,
    )
    return None if answer is None else answer.text("refused", 300)


def has_server(workdir: str) -> bool:
    """Whether this work directory has had warm servers."""
    return os.path.isdir(socket_folder(workdir))
