"""All installed packages, by the names of the folders that their installers leave beside them."""

from __future__ import annotations

import os
import re
import sys
import zlib
from typing import Any

from .probe_ask import list_folder

MOST = 2000  # packages told; the digest is over all


def installed() -> dict[str, Any]:
    """Tell every package as `name version`, sorted, and a digest of them all; of two of one name the first counts."""
    found: dict[str, str] = {}
    for folder in sys.path:
        if folder and os.path.isdir(folder):
            for path in list_folder(folder, "*-info"):
                name, version = split_name(os.path.basename(path))
                if version:
                    found.setdefault(name, version)
    told = ["%s %s" % pair for pair in sorted(found.items())]
    digest = "%08x" % zlib.crc32("\n".join(told).encode("utf-8", "replace"))  # hashlib costs 5 ms to import
    return {"digest": digest, "packages": told[:MOST]}


def split_name(folder: str) -> tuple[str, str]:
    """Read `Name_x-1.2.dist-info` or `name-1.2-py3.11.egg-info` as normalised name and version; "" if it is neither."""
    base, suffix = os.path.splitext(folder)
    name, mark, rest = base.partition("-")
    if suffix not in (".dist-info", ".egg-info") or not mark:
        return "", ""
    return re.sub("[-_.]+", "-", name).lower(), re.split("-py[0-9]", rest)[0]
