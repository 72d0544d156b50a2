"""The descriptor that wakes a reader: it is rung from paramiko's thread while others close it."""

from __future__ import annotations

import os
import select

from clusterctl.client.rpc.channels import WakeupPipe


def rings(bell: WakeupPipe) -> bool:
    """Look whether a reader would wake."""
    return bool(select.select([bell.fileno()], [], [], 0)[0])


def test_it_rings_while_any_cord_is_pulled() -> None:
    """Pulling twice is pulling once; the last to let go makes it quiet."""
    bell = WakeupPipe()
    out, err = bell.event("stdout"), bell.event("stderr")
    assert not rings(bell)
    for cord in (out, out, err):
        cord.set()
    out.clear()
    assert rings(bell)
    err.clear()
    err.clear()
    assert not rings(bell)
    bell.close()


def test_a_released_bell_touches_no_descriptor() -> None:
    """Its numbers may belong to another connection by then: a byte too many or too few would end that one."""
    bell = WakeupPipe()
    cord = bell.event("stdout")
    bell.close()
    reader, writer = os.pipe()  # takes the same two numbers
    os.set_blocking(reader, False)
    cord.set()
    assert not select.select([reader], [], [], 0)[0]
    os.write(writer, b"x")
    cord.clear()
    assert os.read(reader, 2) == b"x"
    bell.close()
    os.close(reader)
    os.close(writer)
