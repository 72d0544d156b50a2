"""The two texts that meet a node's login shell: a constant command, and one line that leads to Python.

The command is the same for every node and every use, and means the same in sh, bash, zsh, fish and csh:
nothing that a user wrote is in it. Whatever differs travels afterwards on stdin, to a `/bin/sh`.
"""

from __future__ import annotations

# Lines that do not start with a colon are not ours: then a start-up file has read our first lines, and
# `exit 125` says so instead of evaluating what follows.
REMOTE_COMMAND = (
    "exec /bin/sh -c 'while IFS= read -r c; do case $c in :*) eval \"$c\";; *) exit 125;; esac; done'"
)
STOLEN_STDIN = 125

# What a `read` in a start-up file may take without harm.
DECOYS = ":\n" * 8

BOOT = (
    'import sys;b=getattr(sys.stdin,"buffer",sys.stdin);'
    'exec(compile(b.read(int(b.readline())),"clusterctl-boot","exec"))'
)

# What stderr holds when the user's `activate` ended the shell, and no Python was started.
SHELL_ENDED = "clusterctl: activate ended the shell with status "

# What stdout holds before and after the user's `activate`, so that one that hangs can be named.
ACTIVATING = "clusterctl: activate begins"
ACTIVATED = "clusterctl: activate has come to its end"

# `||` keeps a `set -e` of the user's text from ending the shell; a `set --` in it cannot lose what was kept.
# The status goes to Python in a variable, which `payload.launcher` keeps from the workers.
ACTIVATE = (
    "clusterctl_python=$2 clusterctl_boot=$3 clusterctl_status=0; unset CLUSTERCTL_ACTIVATE_STATUS;"
    f' trap "echo \\"{SHELL_ENDED}\\$?\\" >&2" EXIT; echo "{ACTIVATING}";'
    ' eval "$1" </dev/null >&2 || clusterctl_status=$?;'
    f' trap - EXIT; echo "{ACTIVATED}";'
    ' export CLUSTERCTL_ACTIVATE_STATUS="$clusterctl_status";'
    ' [ "$clusterctl_status" = 0 ] || echo "clusterctl: activate ended with status $clusterctl_status" >&2;'
    ' exec "$clusterctl_python" -c "$clusterctl_boot"; exit 126'
)


def render_bootstrap(python: str, activate: str | None) -> str:
    """Write the one line of sh that ends in the node's Python reading its program from stdin."""
    steps = [":", *_assign("p", python)]
    if activate is None:
        steps.append(f"exec \"$p\" -c '{BOOT}'")
    else:
        steps += _assign("a", activate, home=False)
        steps.append("s=/bin/sh; command -v bash >/dev/null 2>&1 && s=bash")
        steps.append(f'exec "$s" -c \'{ACTIVATE}\' activate "$a" "$p" \'{BOOT}\'')
    return "; ".join([*steps, "exit 126"])


def _assign(name: str, value: str, *, home: bool = True) -> list[str]:
    """Assign any text to a shell variable; a leading `~/` becomes the home directory there."""
    if home and value.startswith("~/"):
        return [*_assign(name, value[2:], home=False), f'{name}="$HOME/${name}"']
    raw = value.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise ValueError("a NUL byte cannot be part of a command")
    if all(0x20 <= byte < 0x7F and byte != 0x27 for byte in raw):
        return [f"{name}='{value}'"]
    octal = "".join(f"\\0{byte:03o}" for byte in raw)
    # The x keeps newlines at the end from being dropped by $( ).
    return [f"{name}=$(printf %b '{octal}x')", f"{name}=${{{name}%x}}"]
