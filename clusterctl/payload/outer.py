"""What an environment made from within another venv sees of it; by itself it sees the base Python's packages alone."""

from __future__ import annotations

import glob
import os
import sys

NAME = "clusterctl-outer.pth"


def show_outer(prefix: str) -> None:
    """Lead an environment to the packages of the venv that made it, if one did; its own come first."""
    outer = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    if not os.path.exists(os.path.join(outer, "pyvenv.cfg")):
        return
    lines = ["import site; site.addsitedir(%r)\n" % folder for folder in sites(outer)]
    for folder in sites(prefix):
        with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
            file.write("".join(lines))


def sites(prefix: str) -> list[str]:
    """Return the folders of packages below a prefix, for this version of Python."""
    version = "python%d.%d" % sys.version_info[:2]
    found = [
        glob.glob(os.path.join(glob.escape(prefix), lib, version, "site-packages"))
        for lib in ("lib", "lib64")
    ]
    return sorted({os.path.realpath(folder) for folders in found for folder in folders})
