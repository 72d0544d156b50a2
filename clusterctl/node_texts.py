"""Texts that nodes write in English into their answers and records, and reasons of the system, in the user's language.

A node sends a text, not a case with facts: if it matches one of the templates below, its facts are read from it and
put into the translated template. Any other text stays unchanged.
"""

from __future__ import annotations

import re
from functools import cache

from clusterctl.translation import Translated, language, to_translate, tr

MAX_TEXT = 2000  # characters; of a longer one nothing is translated
MAX_NESTED = 4  # a reason may hold another one
NESTED = frozenset({"why"})  # facts that are texts of nodes themselves
FREE = frozenset(
    {"why", "path", "nodes", "name", "pattern", "program", "command", "step", "runs", "time", "user"}
)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

# Of the operating system, as `strerror` and the resolver word them.
SYSTEM_REASONS = (
    to_translate("Connection refused"),
    to_translate("Connection reset by peer"),
    to_translate("Connection timed out"),
    to_translate("Network is unreachable"),
    to_translate("No route to host"),
    to_translate("Broken pipe"),
    to_translate("Name or service not known"),
    to_translate("Temporary failure in name resolution"),
    to_translate("No address associated with hostname"),
    to_translate("Address already in use"),
    to_translate("Cannot assign requested address"),
    to_translate("Permission denied"),
    to_translate("Operation not permitted"),
    to_translate("No such file or directory"),
    to_translate("Not a directory"),
    to_translate("Is a directory"),
    to_translate("File exists"),
    to_translate("Directory not empty"),
    to_translate("File name too long"),
    to_translate("No space left on device"),
    to_translate("Disk quota exceeded"),
    to_translate("Read-only file system"),
    to_translate("Input/output error"),
    to_translate("Stale file handle"),
    to_translate("Too many open files"),
    to_translate("Too many levels of symbolic links"),
    to_translate("Cannot allocate memory"),
    to_translate("Exec format error"),
)

TEMPLATES = (
    *SYSTEM_REASONS,
    to_translate("[Errno {number}] {why}: {path}"),
    to_translate("[Errno {number}] {why}"),
    to_translate("no run {run} on {node} in {path}"),
    to_translate("no run {run} in {path}"),
    to_translate("{program} is not on the PATH of this machine"),
    to_translate("{program} did not end within {seconds} s"),
    to_translate("{program} ended with status {status}"),
    to_translate("Slurm job {number} waits in the queue: {why}"),
    to_translate("Slurm job {number} waits in the queue"),
    to_translate("Slurm job {number} belongs to the Slurm cluster {name}, not to that of this login node"),
    to_translate("Slurm job {number} ended before all nodes had written their final state: {why}"),
    to_translate("Slurm job {number} ended before all nodes had written their final state"),
    to_translate("Slurm no longer knows job {number}"),
    to_translate("Slurm job {number} is {state}"),
    to_translate("Slurm did not report whether its job has ended"),
    to_translate("one of its tasks is running"),
    to_translate("it is not a run of this Slurm cluster"),
    to_translate("stopped by Slurm: job {number} was cancelled, preempted or out of time"),
    to_translate("stopped by Slurm: job {number} is back in the queue"),
    to_translate("Slurm stopped job {number} and put it back into the queue"),
    to_translate("the checks failed: {text}"),
    to_translate("the check needs Python {needed} on the nodes, here is {version}"),
    to_translate("the program that judges the nodes failed; see task.0.out"),
    to_translate("what the check found cannot be read"),
    to_translate("run {run} was already started on {node}"),
    to_translate("not a usable name: {name}"),
    to_translate("the payload was damaged in transfer"),
    to_translate("the agent exited early: it was killed"),
    to_translate("the agent exited early: {why}"),
    to_translate("{path} no longer holds a run"),
    to_translate("nothing was stopped: {why}"),
    to_translate("cannot write {path}: {why}"),
    to_translate("cannot write {path}"),
    to_translate("cannot use {path}: {why}"),
    to_translate("cannot make directory {path}: {why}"),
    to_translate("the node's system refused: {why}"),
    to_translate("{path} does not exist"),
    to_translate("{path} is neither a file nor a directory"),
    to_translate("{path} is not a directory"),
    to_translate("{path} is a directory"),
    to_translate("{path} is a link"),
    to_translate("{path} is another file system"),
    to_translate("{path} belongs to another account (uid {uid})"),
    to_translate("{path} belongs to another account"),
    to_translate("{path} can be written by others (mode {mode}); chmod go-w it"),
    to_translate("{path} cannot be a work directory of clusterctl"),
    to_translate("{path} has no file `id`, which marks a work directory of clusterctl"),
    to_translate("{user} is staging to it"),
    to_translate("this node has not written its files"),
    to_translate("its name is not UTF-8"),
    to_translate("its name is too long"),
    to_translate("it has too many files"),
    to_translate("its files changed while they were read"),
    to_translate("its files were removed while they were read"),
    to_translate("its files changed or were removed while they were read"),
    to_translate("run {run} writes its checkpoints to the same directory"),
    to_translate("no node gives the files: {why}"),
    to_translate("{name} is no checkpoint of the pattern"),
    to_translate("several nodes have a file of one name, and none is this node's own"),
    to_translate("no node has it"),
    to_translate("the manifest is not the one of the seal"),
    to_translate("the manifest does not list the files of the seal"),
    to_translate("{path} is not a file"),
    to_translate("it belongs to another node"),
    to_translate("it is still running"),
    to_translate("it may be starting"),
    to_translate("it may be running on another machine"),
    to_translate("some of its processes are still running"),
    to_translate("no room at {path}: {needed} are needed, {free} are free"),
    to_translate("no room at {path}: {count} inodes are needed, {free} are free"),
    to_translate("no room at {path}: {needed} are needed: {why}"),
    to_translate("{path} belongs to uid {uid} (mode {mode}), and this account is uid {account}"),
    to_translate("no manifest arrived"),
    to_translate("the manifest cannot be read: {why}"),
    to_translate("content {sha} was not requested"),
    to_translate("{count} files did not arrive"),
    to_translate("a file changed in transfer: {why}"),
    to_translate("more than its {size} bytes came"),
    to_translate("its content is not {sha}; its first part came from another node"),
    to_translate("its content is not {sha}"),
    to_translate("an empty piece of a file arrived before its last one"),
    to_translate("{path} exists already with other contents"),
    to_translate("no longer a regular file"),
    to_translate("not a regular expression: {pattern}: {why}"),
    to_translate("no free port for the rendezvous: all of `ports: {ports}` are in use"),
    to_translate("no free port for the rendezvous: all ports outside the ephemeral range are in use"),
    to_translate("all of `ports: {ports}` are in use"),
    to_translate("node 0 cannot listen for so many other nodes: {why}"),
    to_translate("this node allows {limit} open files, and {count} are needed (`nofile` in limits.conf)"),
    to_translate("node 0 cannot listen on {address}, ports {ports} for the other nodes: {why}"),
    to_translate("node 0 cannot listen on {address} for the other nodes: {why}"),
    to_translate("every port is taken"),
    to_translate("no answer"),
    to_translate("no answer within {limit} s"),
    to_translate("no data within {limit} s"),
    to_translate("no proof within {limit} s"),
    to_translate("it accepts connections but does not answer within {limit} s"),
    to_translate("it accepts connections but fails authentication within {limit} s"),
    to_translate("it does not have the token of this run"),
    to_translate("it does not know the token"),
    to_translate("it sent no nonce"),
    to_translate("it sent more than requested"),
    to_translate("it sent something that was not requested"),
    to_translate("it sent an empty frame"),
    to_translate("it sent an endless line"),
    to_translate("it sent an endless message"),
    to_translate("it sent an unauthenticated line"),
    to_translate("it sent a line out of sequence"),
    to_translate("it sent a malformed message ({why})"),
    to_translate("it answered a beat that was not sent"),
    to_translate("it does not have all contents"),
    to_translate("it does not read"),
    to_translate("it closed the connection"),
    to_translate("it is too slow"),
    to_translate("it does not answer"),
    to_translate("what it sent cannot be read: {why}"),
    to_translate("what it sent caused an error here: {why}"),
    to_translate("a file became shorter"),
    to_translate("the connection ended"),
    to_translate("another program answers there"),
    to_translate("more data than agreed"),
    to_translate("no data"),
    to_translate("it was silent for {limit} s"),
    to_translate("it was silent for {limit} s, and its node does not answer"),
    to_translate("it did not come"),
    to_translate("it did not connect to the next hub"),
    to_translate("it did not end after the stop"),
    to_translate("it did not report how the run ended"),
    to_translate("it disconnected before the start: {why}"),
    to_translate("it disconnected before the start"),
    to_translate("it is ready as rank 0 but has no master port"),
    to_translate("it reports that this node is lost"),
    to_translate("it sent a record without this node's own part"),
    to_translate("it began attempt {number} after {previous}"),
    to_translate("the last attempt has not been cleared away"),
    to_translate("only {left} of {count} nodes are left"),
    to_translate("no such slot"),
    to_translate("this slot is already connected"),
    to_translate("not the node name of this slot"),
    to_translate("not of this run"),
    to_translate("{node} is lost: {why}"),
    to_translate("{node} is lost"),
    to_translate("rank {rank} on {node} is lost"),
    to_translate("node {slot} ({node}) is lost: {why}"),
    to_translate("node {slot} ({node}) could not be reached: {why}"),
    to_translate("lost: {why}"),
    to_translate("not ready within {limit} s"),
    to_translate("{nodes}: not ready within {limit} s"),
    to_translate("rank {rank} on {node} did not respond; the others waited for it"),
    to_translate("{node} did not respond; the others waited for it"),
    to_translate("rank {rank} on {node} left while the others still needed it"),
    to_translate("{node} left while the others still needed it"),
    to_translate("rank {rank} on {node}, killed by {signal}"),
    to_translate("rank {rank} on {node}, exit code {code}"),
    to_translate("rank {rank} on {node}: {why}"),
    to_translate("torchrun on {node}, killed by {signal}"),
    to_translate("torchrun on {node}, exit code {code}"),
    to_translate("{node}: {why}"),
    to_translate("{launcher} was killed by {signal}"),
    to_translate("killed by {signal}"),
    to_translate("exit code {code}"),
    to_translate("ended"),
    to_translate("stopped"),
    to_translate("not prepared"),
    to_translate("does not take the signal"),
    to_translate("rank {rank}: {why}"),
    to_translate("its stream broke {count} times without data"),
    to_translate("the connection was lost and not restored"),
    to_translate("{launcher} exited with {code}"),
    to_translate("rank {rank} was killed by {signal}"),
    to_translate("rank {rank} did not exit after its traceback"),
    to_translate("no rank made progress for {time}"),
    to_translate("rank {rank} exited with {code}"),
    to_translate("{program} was killed by {signal} before it was ready"),
    to_translate("{program} exited with {code} before it was ready"),
    to_translate("the agent was killed by {signal}"),
    to_translate("the agent exited with {code}"),
    to_translate("the agent was silent for {limit} s"),
    to_translate("the agent was silent for {limit} s: it was halted (SIGSTOP)"),
    to_translate("the agent failed; see agent.log in the run's directory"),
    to_translate("the agent failed: {why}"),
    to_translate("the guardian was killed"),
    to_translate("agent and guardian are not running"),
    to_translate("the node was restarted during the run"),
    to_translate("it ran on machine {name}, this is {machine}"),
    to_translate("{count} of {planned} workers were started"),
    to_translate("rank {rank} saw WORLD_SIZE {size}, planned were {planned}"),
    to_translate("ran alone: no process group of {planned} was formed"),
    to_translate("formed process groups of {size}, planned were {planned}"),
    to_translate("no GO arrived"),
    to_translate("the client disconnected before GO"),
    to_translate("the client sent more than was taken"),
    to_translate("cancelled before the start"),
    to_translate("interrupted before all nodes had started"),
    to_translate("the start failed before all nodes had started"),
    to_translate("stopped by SIGTERM to the agent on {node}"),
    to_translate("stopped by SIGTERM to the guardian on {node}"),
    to_translate("stopped by {user}"),
    to_translate("this spare was not needed"),
    to_translate("spare"),
    to_translate("waits for {runs}"),
    to_translate("waits for the other nodes"),
    to_translate("{count} processes could not be ended"),
    to_translate("the memory of its GPUs is still in use"),
    to_translate("the run ended before this node's part did"),
    to_translate("time limit of {time}"),
    to_translate("took longer than its time limit of {time}"),
    to_translate("setup: {why}"),
    to_translate("before: {why}"),
    to_translate("after: was killed by a second stop"),
    to_translate("after: {why}"),
    to_translate("it created no environment"),
    to_translate("the steps created no interpreter at bin/python"),
    to_translate("waiting for run {run}, which builds the same environment"),
    to_translate("step {number} of {count}: {text}"),
    to_translate("the setup files are not what was sent; launch again"),
    to_translate("a file of the setup is not in the store: {path}"),
    to_translate("cannot start {program}: {why}"),
    # which NIC a node trains with, as its record has it
    to_translate("ip: in the inventory"),
    to_translate("first address on nic: {nics}, which host {host} is not on"),
    to_translate("host {host} on the node"),
    to_translate("where SSH arrived (host {host} is loopback there)"),
    to_translate("where SSH arrived (host {host} does not resolve there)"),
    to_translate("`{command}` exited with {code}, the disk is full"),
    to_translate("`{command}` exited with {code}"),
    to_translate("`{command}` was killed by {signal}, the disk is full"),
    to_translate("`{command}` was killed by {signal}"),
    to_translate("setup failed"),
    to_translate("restart {number} of {most} in {pause} s: {why}"),
    # of checkpoints that the nodes keep
    to_translate("the process that keeps checkpoints has ended"),
    to_translate("the process that keeps checkpoints has ended: {why}"),
    to_translate("it reports no progress within {seconds} s"),
    to_translate("it has no files"),
    to_translate("it has too many files"),
    to_translate("its name is not UTF-8"),
    to_translate("its name is too long"),
    to_translate("its files changed or were removed while they were read"),
    to_translate("its files changed while they were read"),
    to_translate("its files were removed while they were read"),
    to_translate("it was begun before its node could watch it"),
    to_translate("the attempt ended before every node had read its part"),
    to_translate("files of a node came after the others were read; it is read again"),
    to_translate("a newer one came while another was being copied"),
    to_translate("a node has sent no valid part of it"),
    to_translate("all nodes see the same files, nothing is copied"),
    to_translate("no checkpoint is left"),
    to_translate("{name} is left"),
    to_translate("the checkpoint {name} cannot be restored: {why}"),
    to_translate("nvidia-smi is not on this node"),
    to_translate("nvidia-smi gave no answer within {limit} s"),
    to_translate("nvidia-smi ended with {code}"),
    to_translate("the name was not resolved within {limit} s"),
    to_translate("the kernel did not report the addresses"),
    to_translate("loading the library crashed"),
    to_translate("a rank does not report its node"),
    to_translate("its answer is incomplete"),
    to_translate("its answer cannot be read: {why}"),
    to_translate("got a wrong sum"),
    to_translate("`{step}` did not finish within {limit} s"),
    to_translate("the process exited during `{step}` (limit {limit} s)"),
    to_translate("the data did not arrive within {limit} s"),
    to_translate("unknown"),
    # what a node downloads
    to_translate("{name}: the server sends {count} bytes, and {planned} were listed"),
    to_translate("{name} changed while it was downloaded"),
    to_translate("{name}: it is listed as empty, and with a hash of something"),
    to_translate("{name}: more than {limit} bytes come"),
    to_translate("{name}: what came does not have the hash that was listed"),
    to_translate("the server cannot be reached: {why}"),
    to_translate("{name} does not send what it should: {why}"),
    to_translate("the server sends another part of a file than was requested"),
    to_translate("the server sends a file only with Content-Encoding: {encoding}"),
    to_translate("{name}: the hub lists {count} files"),
    to_translate("{name} is not the address of a hub"),
    to_translate("{name}: the hub does not report its commit"),
    to_translate("{name}: the hub's list does not end"),
    to_translate("{name}: the hub's list cannot be read"),
    to_translate("{name}: the hub does not list all its files"),
    to_translate("{name}: the hub lists {path} without a size or a hash"),
    to_translate("{name}: {host} refuses it ({why})"),
    # practice clusters
    to_translate("lab: {host} port {port}: {why}"),
    to_translate("{node} is powered off"),
    to_translate("{node} does not answer: {why}"),
    to_translate("{node} has no NIC of its own"),
    to_translate("the first process of a node ended"),
    to_translate("create namespaces: {why}"),
    to_translate("build the network: {why}"),
    to_translate("create {node}: {why}"),
    to_translate("set up {node}: {why}"),
    to_translate("start sshd: {why}"),
    to_translate("sshd on {address} does not answer"),
)


def translate_node_text(text: str) -> str:
    """Translate a text that a node sent, line by line; a line that matches no template stays unchanged."""
    if language() == "en" or len(text) > MAX_TEXT:
        return text
    return Translated("\n".join(_translate(line, MAX_NESTED) for line in text.split("\n")), text)


def describe_system_error(error: BaseException) -> str:
    """Return the system's reason for an error; of one that has none, its text."""
    return translate_node_text(getattr(error, "strerror", None) or str(error))


def find_template(text: str) -> tuple[str, dict[str, str]] | None:
    """Find the matching template with the most literal characters, and its facts; None if no template matches.

    Each literal is searched once, from left to right: no text of a node can make this slow.
    """
    for template, parts in _compiled():
        facts = _match(parts, text)
        if facts is not None:
            return template, facts
    return None


def _translate(text: str, depth: int) -> str:
    found = find_template(text) if depth else None
    if found is None:
        return text
    template, facts = found
    return tr(
        template,
        **{name: _translate(fact, depth - 1) if name in NESTED else fact for name, fact in facts.items()},
    )


@cache
def _compiled() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Split the templates into literals and names, which alternate; the longest literals first."""
    by_length = sorted(TEMPLATES, key=lambda template: len(_PLACEHOLDER.sub("", template)), reverse=True)
    return tuple((template, tuple(_PLACEHOLDER.split(template))) for template in by_length)


def _match(parts: tuple[str, ...], text: str) -> dict[str, str] | None:
    """Take the facts of a template out of a text; a fact is not empty, and most are one word."""
    if not text.startswith(parts[0]) or (len(parts) == 1 and text != parts[0]):
        return None
    facts: dict[str, str] = {}
    position = len(parts[0])
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        is_last = len(facts) == len(parts) // 2 - 1
        end = len(text) - len(literal) if is_last else text.find(literal, position + 1)
        if end <= position or not text.endswith(literal if is_last else ""):
            return None
        facts[name], position = text[position:end], end + len(literal)
        if name not in FREE and any(map(str.isspace, facts[name])):
            return None
    return facts
