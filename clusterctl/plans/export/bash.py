"""A job as a bash script that starts every node by ssh, and stops all when one fails.

What prevents orphans: stdin of each ssh is a pipe that ends when the script ends, however it ends. On the node `guard`
reads it; there is a line every five seconds. When it ends or is silent for 30 s, and always after the end of the
program, guard ends every process that has the run's mark in its environment.
"""

from __future__ import annotations

import hashlib
from math import ceil

from clusterctl.plans.export.shell import (
    CHOOSE_NETWORK,
    PORTS,
    Export,
    Script,
    indent,
    list_notes,
    render_activate,
    render_comment,
    render_node_settings,
    render_notes,
    render_program,
    render_run_job,
    render_setup,
)
from clusterctl.plans.launch.launchers import visible_env
from clusterctl.plans.ssh import render_options
from clusterctl.specs.text import command_line, quote_word
from clusterctl.translation import tr

REMOTE = "clusterctl-export"  # in the home directory on the nodes


def render_bash(export: Export) -> Script:
    """Write the script; it needs bash 4.4, ssh and GNU tar here, bash, tar, grep and iproute2 on the nodes."""
    notes = list_notes(export.job, export.nodes, "bash")
    lines = [*_head(export), *render_notes(notes), "", *_settings(export), *_on_node(export)]
    lines += [*_carry(_node_script(export)), ""]
    lines += [*_prepare(export), *START_NODE, "", *_main(export)]
    return Script("\n".join(lines) + "\n", notes)


def _head(export: Export) -> list[str]:
    job = export.job
    return [
        "#!/bin/bash",
        *render_comment(
            tr(
                "The job {job} over SSH, made by `clusterctl export bash`. It runs without clusterctl:",
                job=job.name,
            )
        ),
        "#",
        f"#     bash {quote_word(export.file)} [ARGUMENTS]    # {tr('they follow the arguments of the job file')}",
        "#",
        *render_comment(
            tr(
                "The code is in {source!r}, relative to this file, and is copied to ~/{remote} on every node, where it stays. The job runs as long as this script does: Ctrl-C, an error of one node or the end of this machine stops all nodes. ssh must log in without questions. The checks of `clusterctl check` are not included.",  # noqa: E501  one message
                source=export.source,
                remote=REMOTE,
            )
        ),
    ]


def _settings(export: Export) -> list[str]:
    job = export.job
    low, high = export.members[0].node.ports or PORTS
    secrets = [f': "${{{name}:?set it before you start this}}"' for name in job.secrets]
    return [
        "set -euo pipefail",
        'cd "$(dirname -- "$0")"',
        *(
            render_comment(
                tr("Secrets: they travel over the connection; no value is in this file or in a command line.")
            )
            if secrets
            else []
        ),
        *secrets,
        *([f"secrets=({' '.join(job.secrets)})"] if secrets else []),
        f"names=({' '.join(quote_word(member.name) for member in export.members)}) # in the order of their node_rank",
        f"run_id={job.name}-$(date -u +%Y%m%dT%H%M%S)-$$",
        f"remote={REMOTE}/$run_id",
        f"master_port=${{MASTER_PORT:-$(({low} + RANDOM % {high - low + 1}))}}",
        "logs=$PWD/$run_id",
        "",
    ]


def _on_node(export: Export) -> list[str]:
    options = [tuple(render_options(member.node)) for member in export.members]
    shared = options[0] if len(set(options)) == 1 else ()
    cases = [
        f"{member.node_rank}) ssh+=({command_line(*own[len(shared) :], '--', member.node.host)}) ;;"
        for member, own in zip(export.members, options, strict=True)
    ]
    return [
        "on_node() { # NODE_RANK COMMAND: run it there; stdin and stdout are the command's",
        *indent(
            [
                "local ssh=(ssh -T -x -a -o BatchMode=yes -o ConnectTimeout=20)",
                "ssh+=(-o ServerAliveInterval=5 -o ServerAliveCountMax=4)",
                *([f"ssh+=({command_line(*shared)})"] if shared else []),
                "case $1 in",
                *cases,
                "esac",
                '"${ssh[@]}" "$2"',
            ]
        ),
        "}",
        "",
    ]


# ---- what runs on a node ----


def _carry(script: list[str]) -> list[str]:
    """Write the function that prints the script of the node.

    A value of the job may have any line, and here a line that ends the here-document would begin commands on this
    machine. No text can hold its own hash. In a function, because bash before 5.2 reads a here-document inside of
    `$( )` by looser rules.
    """
    digest = hashlib.sha256("\n".join(script).encode("utf-8", "surrogateescape")).hexdigest()
    end = f"END OF NODE SCRIPT {digest[:32]}"
    return ["node_script() { # prints it", f"    cat <<'{end}'", *script, end, "}"]


def _node_script(export: Export) -> list[str]:
    job = export.job
    low_line = [f"export {key}={quote_word(value)}" for key, value in visible_env("nvidia", job.gpus).items()]
    program = render_program(export)
    program[-1] += " &"
    # guard sends TERM to this process first: torchrun passes it on
    program += ['echo "$!" >"$here/program.pid"', 'wait "$!" || status=$?', 'rm -f "$here/program.pid"']
    return [
        "# Runs on every node: guard starts job, and ends it with the connection.",
        "set -euo pipefail",
        'here=$(cd "$(dirname -- "$0")" && pwd)',
        "code=$here/code attempt=1",
        f"nnodes={export.nodes.count} grace={ceil(job.grace)}",
        "",
        *(render_setup(export.setup) if export.setup else []),
        *render_node_settings(export),
        "",
        *render_activate(export),
        *CHOOSE_NETWORK,
        "",
        *render_run_job(export, [*low_line, *program]),
        *_modes(export),
    ]


def _modes(export: Export) -> list[str]:
    workdirs = {member.node.workdir for member in export.members}
    workdir = next(iter(workdirs)) if len(workdirs) == 1 else "~/.clusterctl"
    setup = []
    if export.setup:
        activate = ['activate_node "$node"'] if render_activate(export) else []
        setup = [
            'node_settings "$node"',
            *activate,
            f"environment=$HOME/{REMOTE}/environments/{export.setup.content_hash[:12]}",
            'mkdir -p "${environment%/*}"',
            'cd "$here/setup"',
            "make_environment",
        ]
    return [
        *GUARD,
        "",
        "# MODE NODE PEER NODE_RANK RUN_ID MASTER_ADDR MASTER_PORT ARGUMENTS...",
        "mode=$1 node=$2 peer=$3 node_rank=$4 run_id=$5 master_addr=$6 master_port=$7",
        "shift 7",
        f"output_dir={command_line(f'{workdir}/outputs/{export.job.name}')}",
        f"stage_dir={command_line(f'{workdir}/stage')}",
        "case $mode in",
        "address)",
        *indent(['node_settings "$node"', 'choose_network "$peer"', 'echo "$address"']),
        "    ;;",
        'guard) guard "$@" ;;',
        "job)",
        *indent([*setup, 'run_job "$@"']),
        "    ;;",
        "esac",
    ]


GUARD = r"""
marked() { # lists the processes of this run
    grep -lszxF -- "EXPORTED_RUN=$run_id.$node_rank" /proc/[0-9]*/environ | sed 's|/proc/\(.*\)/environ|\1|' || true
}

end_job() { # SECONDS: TERM to the program, else to all; then KILL to all that is left
    local program pids tenths
    pids=$(marked)
    [ -n "$pids" ] || return 0
    program=$(cat "$here/program.pid" 2>/dev/null || true)
    # shellcheck disable=SC2086 # a list of numbers
    kill -TERM ${program:-$pids} 2>/dev/null || true
    for ((tenths = 0; tenths < $1 * 10; tenths += 2)); do
        [ -n "$(marked)" ] || return 0
        sleep 0.2
    done
    while pids=$(marked) && [ -n "$pids" ]; do
        # shellcheck disable=SC2086
        kill -KILL $pids 2>/dev/null || true
        sleep 0.1
    done
}

watch_connection() { # a line every five seconds, `failed` when another node has failed; then the end
    local line
    while IFS= read -r -t 30 line; do
        [ "$line" != failed ] || kill -USR1 "$1" || return 0
    done
    kill -TERM "$1" || true
}

guard() { # ARGUMENTS...: start the job, and end it with the connection
    local status=0 code=0 line job watcher arguments=("$@")
    while IFS= read -r line && [ "$line" != GO ]; do eval "$line"; done
    [ "$line" = GO ] || exit 1
    exec 3<&0
    trap 'end_job 1; status=143' USR1
    trap 'end_job "$grace"; status=143' TERM INT HUP
    EXPORTED_RUN=$run_id.$node_rank bash "$0" job "$node" "$peer" "$node_rank" "$run_id" "$master_addr" "$master_port" \
        ${arguments+"${arguments[@]}"} </dev/null 3<&- &
    job=$!
    watch_connection $$ <&3 >/dev/null 2>&1 &
    watcher=$!
    wait "$job" || code=$?
    [ "$status" != 0 ] || status=$code
    trap '' USR1 TERM INT HUP
    kill "$watcher" 2>/dev/null || true
    end_job 2
    exit "$status"
}
""".strip().splitlines()


# ---- what runs here ----


def _prepare(export: Export) -> list[str]:
    logs = f"/{export.job.name}-[0-9]*T[0-9]*-[0-9]*"  # of earlier runs
    excludes = [".git", "__pycache__", "*.pyc", logs, *export.job.sync.exclude]
    options = " ".join(
        "--exclude=" + quote_word(_tar_pattern(pattern))
        for pattern in excludes
        if not pattern.startswith("!")
    )
    files = command_line(*export.setup_files)
    setup = [
        f"tar -C {quote_word(export.folder)} -cf - -- {files} |",
        '    on_node "$1" "bash -c \'umask 077; mkdir -p $remote/$1/setup && tar -xf - -C $remote/$1/setup\'"',
    ]
    if export.setup and not export.setup_files:
        setup = ['on_node "$1" "mkdir -p $remote/$1/setup" </dev/null']
    return [
        "prepare_node() { # NODE_RANK: copies the code and the script of the node",
        *indent(
            [
                f"tar -C {quote_word(export.source)} {options} --exclude-vcs-ignores -cf - . |",
                '    on_node "$1" "bash -c \'umask 077; mkdir -p $remote/$1/code && tar -xf - -C $remote/$1/code\'"',
                *(setup if export.setup else []),
                'on_node "$1" "bash -c \'umask 077; cat >$remote/$1/node.sh\'" < <(node_script)',
            ]
        ),
        "}",
        "",
    ]


def _tar_pattern(pattern: str) -> str:
    """Turn a pattern of a `.gitignore` into one of tar, in which a star takes slashes too."""
    own = pattern.removesuffix("/").replace("**", "*")
    return f"./{own.removeprefix('/')}" if "/" in own else own


START_NODE = r"""
feed() { # what guard reads: secrets, then a line every five seconds until this script ends
    local name status
    for name in ${secrets+"${secrets[@]}"}; do printf 'export %s=%q\n' "$name" "${!name}"; done
    echo GO
    while :; do
        status=0
        read -r -t 5 _ || status=$?
        [ "$status" -gt 128 ] || break
        echo alive
    done
    if [ -e "$tmp/failed" ]; then echo failed; fi
} 2>/dev/null <"$tmp/end"

on_script() { # NODE_RANK MODE PEER ARGUMENTS...: run the node's script; quotes that every login shell understands
    local rank=$1 mode=$2 peer=$3 word words=
    shift 3
    for word in "$mode" "${names[rank]}" "$peer" "$rank" "$run_id" "$master_addr" "$master_port" "$@"; do
        words+=" '${word//\'/\'\\\'\'}'"
    done
    on_node "$rank" "bash $remote/$rank/node.sh$words"
}

start_node() { # NODE_RANK ARGUMENTS...: returns when the node's part has ended, and reports how
    local status=0 rank=$1 peer=$master_addr
    shift
    [ "$rank" != 0 ] || peer=$second
    on_script "$rank" guard "$peer" "$@" < <(feed) 2>&1 |
        tee "$logs/$rank.out" | sed -u "s/^/${names[rank]}: /" || status=$?
    if kill -0 "$$" 2>/dev/null; then
        echo "$rank $status" 1<>"$tmp/ended" # also for reading: otherwise it would wait for a script that was killed
    else
        rm -rf "$tmp"
    fi
}
""".strip().splitlines()

START = r"""
tmp=$(mktemp -d)
mkfifo "$tmp/end" "$tmp/ended"
# Only this process holds the pipe `end`: when it is closed, or this process killed, every node stops.
exec 8<>"$tmp/end" 9<>"$tmp/ended"
finish() {
    exec 8>&-
    wait
    rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$logs"
echo "run $run_id: ${#names[@]} nodes; output in $logs" >&2
pids=()
for rank in "${!names[@]}"; do
    prepare_node "$rank" 8>&- 9>&- &
    pids+=("$!")
done
for rank in "${!names[@]}"; do
    wait "${pids[rank]}" || { echo "${names[rank]}: the code could not be copied" >&2 && exit 1; }
done
master_addr=${MASTER_ADDR:-}
[ -n "$master_addr" ] || master_addr=$(on_script 0 address "$second" </dev/null)

for rank in "${!names[@]}"; do start_node "$rank" "$@" 8>&- 9>&- & done
status=0
for _ in "${names[@]}"; do
""".strip().splitlines()

END = r"""
    [ "$code" = 0 ] && continue
    status=$code
    touch "$tmp/failed"
    echo "${names[rank]}: exit $code (255: the connection failed); the other nodes are stopped" >&2
    break
done
exit "$status"
""".strip("\n").splitlines()

TIMED = r"""
    if ! read -r -t "$((LIMIT - SECONDS + started > 0 ? LIMIT - SECONDS + started : 1))" -u 9 rank code; then
        echo "the time limit of LIMIT seconds is over; all nodes are stopped" >&2
        exit 124
    fi
""".strip("\n")


def _main(export: Export) -> list[str]:
    job, second = (
        export.job,
        export.members[1].node.ip or export.members[1].node.host if export.nodes.count > 1 else "",
    )
    lines = [f"second={quote_word(second)} # node 0 finds its interface by the route to it", *START]
    if job.time_limit is None:
        return [*lines, "    read -r -u 9 rank code", *END]
    at = lines.index("status=0")
    timed = TIMED.replace("LIMIT", str(ceil(job.time_limit))).splitlines()
    return [*lines[:at], "started=$SECONDS", *lines[at:], *timed, *END]
