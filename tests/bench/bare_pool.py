"""The least that paramiko needs to run one command on many nodes: the yardstick of `fanout`, no bench itself.

python bare_pool.py USER PORT KEY KNOWN_HOSTS ADDRESS... runs `true` at all addresses, each in a thread of its own.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import paramiko


def ask(address: str) -> int:
    """Log in, run `true`, and return its exit status; the host key is compared."""
    user, port, key, known = sys.argv[1:5]
    client = paramiko.SSHClient()
    client.load_host_keys(known)
    client.connect(address, int(port), user, key_filename=key, allow_agent=False, look_for_keys=False)
    _, stdout, _ = client.exec_command("true")
    status = stdout.channel.recv_exit_status()
    client.close()
    return status


addresses = sys.argv[5:]
with ThreadPoolExecutor(len(addresses)) as pool:
    sys.exit(any(pool.map(ask, addresses)))
