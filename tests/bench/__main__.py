"""All benchmarks behind one command.

python -m tests.bench              lists them
python -m tests.bench NAME ...     runs one; what follows is its own, see `NAME --help`
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHES = ("__main__", "measuring", "resume_peers", "resume_program", "stage_peers")


def benches() -> dict[str, str]:
    """Return the benches, each with its first sentence; a module that has no `main` is none."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        has_main = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if path.stem not in NOT_BENCHES and has_main:
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main() -> None:
    """List, or run the one that is named."""
    known = benches()
    if len(sys.argv) < 2:
        for name, text in known.items():
            print(f"{name:<10} {text}")
        return
    name = sys.argv[1]
    if name not in known:
        raise SystemExit(f"no bench {name}; there are: {', '.join(known)}")
    sys.argv = [f"tests.bench {name}", *sys.argv[2:]]
    sys.path.insert(0, str(HERE))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its byte code
    runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")


if __name__ == "__main__":
    main()
