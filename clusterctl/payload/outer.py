"""What an environment sees of the Python that made it, where it is to see that Python's packages."""

from __future__ import annotations

import glob
import os
import re
import site
import sys
from typing import List, Tuple

from .removal import remove_tree

NAME = "clusterctl-outer.pth"
VERSION = re.compile(r"setuptools-(\d+(?:\.\d+)*)[^/]*\.(?:dist|egg)-info\Z")
SETUPTOOLS = (
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
)


def show_outer(prefix: str) -> None:
    """Lead an environment to the packages of the Python that made it, its own first, and hide none of them."""
    outer = outer_venv()
    if outer:
        lines = ["import site; site.addsitedir(%r)\n" % folder for folder in sites(outer)]
        for folder in sites(prefix):
            with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
                file.write("".join(lines))
    drop_old_setuptools(prefix)


def outer_venv() -> str:
    """Return the venv of this interpreter, whose packages a venv made by it does not see; empty if it is of none."""
    outer = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    return outer if os.path.exists(os.path.join(outer, "pyvenv.cfg")) else ""


def drop_old_setuptools(prefix: str) -> None:
    """Remove the setuptools that `venv` puts into an environment where it hides a newer one.

    What is installed may need the newer one, torch does; without an index pip could get it from nowhere else.
    """
    outer = outer_venv()
    shown = [*(sites(outer) if outer else ()), *site.getsitepackages([sys.base_prefix])]
    mine, theirs = newest(sites(prefix)), newest(shown)
    if not mine < theirs or mine == ():
        return
    for folder in sites(prefix):
        for name in SETUPTOOLS:
            for path in glob.glob(os.path.join(glob.escape(folder), name)):
                if os.path.isdir(path):
                    remove_tree(path, lambda: None, lambda *_: None)
                else:
                    os.unlink(path)


def newest(folders: List[str]) -> Tuple[int, ...]:
    """Return the newest version of setuptools in some folders; nothing if none has it."""
    found = [
        VERSION.search(name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
    ]
    versions = [tuple(map(int, match[1].split("."))) for match in found if match]
    return max(versions, default=())


def sites(prefix: str) -> List[str]:
    """Return the folders of packages below a prefix, for this version of Python."""
    version = "python%d.%d" % sys.version_info[:2]
    found = [
        glob.glob(os.path.join(glob.escape(prefix), lib, version, "site-packages"))
        for lib in ("lib", "lib64")
    ]
    return sorted({os.path.realpath(folder) for folders in found for folder in folders})
