"""A public key on its way into an account: what the node's sh is told, and what it says back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

MARK = "clusterctl-key:"
ADDED, PRESENT, FAILED, NOTE = "added", "present", "failed", "note"

# One line, for login shells that read no more than that. What start-up files print stands before the marks.
# The lock is for nodes that share a home; one that was left behind costs five seconds. The modes are those that
# sshd's StrictModes asks for; a home that others may write is the owner's to mend.
_SCRIPT = r"""
umask 077
key={key}
blob={blob}
say() {{ printf '\n%s %s %s\n' '{mark}' "$1" "$2"; }}
fail() {{ say failed "$1"; exit 0; }}
cd || fail 'the home directory cannot be entered'
why=$(mkdir -p .ssh 2>&1) || fail "$why"
file=.ssh/authorized_keys
state=present
lock=.ssh/.clusterctl-lock tries=0
while [ -w .ssh ] && ! mkdir "$lock" 2>/dev/null && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
trap 'rmdir "$lock" 2>/dev/null' EXIT
if ! grep -v '^[[:space:]]*#' "$file" 2>/dev/null | grep -qF "$blob"; then
  state=added
  start=
  [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ] && start='\n'
  why=$( {{ printf "$start%s\n" "$key" >> "$file"; }} 2>&1) || fail "$why"
fi
chmod 700 .ssh && chmod 600 "$file" || say note 'the modes of ~/.ssh could not be set'
restorecon -F .ssh "$file" 2>/dev/null
case $(ls -ld . | cut -c6,9) in *w*) say note 'others may write to the home: chmod go-w ~' ;; esac
say $state "$HOME/$file"
exit 0
"""


@dataclass(frozen=True)
class Installed:
    """What a node says: `added`, `present`, or `failed` with why; and notes."""

    state: str
    detail: str
    notes: tuple[str, ...] = ()


def render_install(public_key: str) -> str:
    """Give the script that puts a public key into the account's authorized_keys, once however often it runs."""
    line = public_key.strip()
    return _SCRIPT.format(key=shlex.quote(line), blob=shlex.quote(" ".join(line.split()[:2])), mark=MARK)


def parse_installed(text: str) -> Installed:
    """Read what came back; a node that does not come to an end has failed, with its last words."""
    said = [line[len(MARK) :].strip() for line in text.splitlines() if line.startswith(MARK)]
    notes = tuple(one.partition(" ")[2] for one in said if one.startswith(NOTE))
    ends = [one for one in said if one.split(" ")[0] in (ADDED, PRESENT, FAILED)]
    if not ends:
        last = text.strip().rpartition("\n")[2]
        return Installed(FAILED, last or "the node's shell said nothing", notes)
    state, _, detail = ends[-1].partition(" ")
    return Installed(state, detail, notes)
