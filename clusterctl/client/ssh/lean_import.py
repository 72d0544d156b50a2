"""Import paramiko without what only tests with it need."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

MOCK = "unittest.mock"


def import_paramiko() -> None:
    """Import paramiko and invoke, which it uses, without unittest.mock and asyncio.

    invoke imports them for a class that only tests use: 40 of 135 ms (invoke 2.2).
    """
    if "invoke" in sys.modules or MOCK in sys.modules:
        return
    stand_in = ModuleType(MOCK)
    vars(stand_in)["Mock"] = object
    sys.modules[MOCK] = stand_in
    try:
        import_module("paramiko")
    finally:
        del sys.modules[MOCK]  # a later import gets the real one
