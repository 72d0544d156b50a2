"""Wheels made by hand, for tests that install without a network: a zip with the three files that pip wants to see."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    source: str = "",
    script: str = "",
    tree: Path | None = None,
    requires: str = "",
) -> Path:
    """Make a wheel of one module, or of what lies in `tree`; `script` names a command that calls its `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {f"{name}.py": source or f"VERSION = {version!r}\n"}
    if tree is not None:
        files = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*.py")}
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    target = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return target
