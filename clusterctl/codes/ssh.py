"""Reaching a node, installing keys: CC-SSH, CC-KEYS."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

UNREACHED = "A node without a connection cannot take part, and a run waits for all of its nodes."
UNTRUSTED = "Another machine at that address could read the code and the secrets of the job."
NO_LOGIN = "Without a login the node cannot be checked."

BASTION_CANNOT_CONNECT = "the bastion {bastion} cannot connect to {address}: {reason}"
CHECK_FROM_BASTION = "check from the bastion whether the node is up: {command}"
START_SSHD = "start sshd on the node, or correct `host` and `ssh.port` in the inventory"
CORRECT_HOST = "correct `host` and `ssh.port` in the inventory"
CHECK_OUTPUT = "check the output of `{command}`"

ENTRIES: Mapping[str, Entry] = {
    "CC-SSH-001": Entry(
        "error",
        "the host name does not resolve on this machine",
        why=UNREACHED,
        what="The name in `host:` is resolved on the machine where clusterctl runs. Use the address, or a name that `getent hosts NAME` finds on this machine.",
        do="Compare with `getent hosts NAME` on this machine, or set `host:` to the address",
        cases={
            "": Case(
                "the name {host} does not resolve",
                "correct `host` in the inventory, or set it to the node's IP address",
            ),
            "openssh": Case(
                "ssh cannot resolve {host}",
                "correct `host` in the inventory, or set a HostName for it in ~/.ssh/config",
            ),
            "tunnel": Case(BASTION_CANNOT_CONNECT, CHECK_FROM_BASTION),
        },
        texts=("Could not resolve hostname",),
    ),
    "CC-SSH-002": Entry(
        "error",
        "the SSH port is closed",
        why=UNREACHED,
        what="The machine refused the connection: sshd is not running, listens on another port (`ssh: {port: N}`), or has blocked this address for a while after failed logins (PerSourcePenalties).",
        do="Check that `port` is right and that sshd is running. After failed logins wait some minutes (PerSourcePenalties)",
        cases={
            "": Case("{target} refused the connection", START_SSHD),
            "openssh": Case("{place} refused the connection", START_SSHD),
            "tunnel": Case(BASTION_CANNOT_CONNECT, CHECK_FROM_BASTION),
        },
        texts=("Connection refused",),
    ),
    "CC-SSH-003": Entry(
        "error",
        "no route to the node",
        why=UNREACHED,
        what="The network has no route to the address: the machine is off, the address is wrong, a VPN is not connected, or a firewall blocks it.",
        do="Check that the machine is on, the address is right and the VPN is connected. Try `ping` and `ssh`",
        cases={
            "": Case(
                "no route to {target}", "check `ip route get` for {address}, and whether that network is up"
            ),
            "openssh": Case(
                "no route to {place}", "check `ip route get` for {host}, and whether that network is up"
            ),
            "tunnel": Case(BASTION_CANNOT_CONNECT, CHECK_FROM_BASTION),
        },
        texts=("No route to host", "Network is unreachable"),
    ),
    "CC-SSH-004": Entry(
        "error",
        "the node did not respond in time",
        why=UNREACHED,
        what="One step exceeded its time limit; the message shows the step. If nothing responds, packets are dropped (firewall, machine off); a slow login is caused by the node's name server or a hanging home directory. If Python did not respond, something in the login shell's startup files (.bashrc, .profile, config.fish) reads from stdin, waits, or replaces the shell (`exec fish`).",
        do="The message shows the step. No response at all: a firewall, or the machine is off. A slow login: the node's DNS, or a hanging home directory. Python did not respond: .bashrc reads stdin or calls `exec`",
        cases={
            "tunnel": Case(
                "the bastion {bastion} could not connect to {address} within {limit:g} s",
                "the node is off, or a firewall between the bastion and the node drops the packets",
            ),
            "name": Case(
                "the name {host} was not resolved within {limit:g} s",
                "check why `{command}` is slow, or set host to the node's IP address",
            ),
            "connect": Case(
                "no connection to {target} within {limit:g} s",
                "the node is off, or a firewall drops the packets; check whether it responds in its own network",
            ),
            "handshake": Case(
                "no {waited_for} from the server at {address} within {limit:g} s",
                "a program accepts connections there but does not respond: the node may be overloaded or stopped",
            ),
            "step": Case(
                "no {step} within {limit:g} s",
                "the node may be overloaded or stopped; check whether an ordinary `ssh` to it still works",
            ),
            "interpreter": Case(
                "{python} did not respond within {limit:g} s",
                "look in the login shell's startup files (.bashrc, .profile, .zshenv, config.fish) for a command that reads from stdin, waits, or replaces the shell (`exec fish`); or the file system is slow",
            ),
            "verb": Case("no result from {verb} in time"),
            "openssh-silent": Case(
                "ssh got no response from {place} in time",
                "the node is off, overloaded or stopped, or a firewall drops the packets",
            ),
            "openssh-login": Case(
                "ssh could not log in at {address} within {limit:g} s",
                "run `{command}` and check what it waits for",
            ),
        },
        texts=("Connection timed out",),
    ),
    "CC-SSH-005": Entry(
        "error",
        "no SSH server at this port",
        why=UNREACHED,
        what="Another program listens there. Correct `host:` or `ssh: {port: N}`.",
        do="Another program listens there: correct `host:` or `ssh: {port: N}`",
        cases={
            "": Case("the program at {address} is not an SSH server", CORRECT_HOST),
            "openssh": Case("the program at {place} is not an SSH server", CORRECT_HOST),
        },
    ),
    "CC-SSH-006": Entry(
        "error",
        "the SSH server closed the connection",
        why=UNREACHED,
        what="The server closed the connection before login, repeatedly for 25 s; the evidence shows the number of attempts. Often it has too many logins in progress (MaxStartups), penalizes this address for earlier failures (PerSourcePenalties), or blocks it. If it has no algorithm in common with this machine, there is no second attempt.",
        do="The server is busy or blocks your address for a while: raise `MaxStartups`, see [a node is not reached](../machines.md#a-node-is-not-reached)",
        cases={
            "algorithms": Case(
                "the server at {address} has no algorithm in common with this machine",
                "update the SSH server on {server}",
            ),
            "": Case(
                "the server at {address} closed the connection {when}",
                "it may limit logins in progress: raise MaxStartups in its sshd_config (100:30:200), check its log, and wait if PerSourcePenalties blocks this machine",
            ),
            "openssh": Case(
                "the server at {place} closed the connection",
                "it may limit connections (MaxStartups, PerSourcePenalties): wait a little, and check its log",
            ),
        },
        texts=("kex_exchange_identification: Connection closed by remote host", "Connection reset by peer"),
    ),
    "CC-SSH-007": Entry(
        "error",
        "no key was accepted",
        why=NO_LOGIN,
        what="The node accepts none of the keys that were offered for this user. `ssh-copy-id` installs a key. If the key is installed, sshd may ignore it because of the permissions of the home directory or ~/.ssh: `chmod go-w ~; chmod 700 ~/.ssh`.",
        do="Run `ssh-copy-id`, as shown, or `clusterctl init --keys`; on the node `chmod go-w ~; chmod 700 ~/.ssh`",
        cases={
            "": Case(
                "{server} rejected the login of {user}: {reason}",
                "try `{command}`; `{copy_command}` installs a key; `user` and `key` under `ssh:` in the inventory select the account and the key",
            ),
            "openssh": Case(
                "the node rejected the login of ssh",
                "check the output of `{command}`; Kerberos may need a `kinit`",
            ),
            "no-terminal": Case(
                "the node rejected the login of ssh",
                "without a terminal ssh cannot prompt for a password or code. Set `ControlMaster auto`, `ControlPath ~/.ssh/cm-%C` and `ControlPersist 8h` for the host in ~/.ssh/config, run `{command}` once and then this command again; or run this command in a terminal. Kerberos needs a `kinit`",
            ),
        },
        texts=("Permission denied (publickey)", "Too many authentication failures"),
    ),
    "CC-SSH-008": Entry(
        "error",
        "the key cannot be used",
        why=NO_LOGIN,
        what="The file in `key:` is missing, unreadable, not a private key, or has a passphrase and is not in ssh-agent. `ssh-add FILE` adds it to the agent.",
        do="Correct the path in `key`; add a key with a passphrase to the agent with `ssh-add`",
        cases={
            "": Case(
                "the key {path} cannot be used: {problem}", "correct `key` under `ssh:` in the inventory"
            ),
            "passphrase": Case(
                "the key {path} cannot be used: it has a passphrase and is not in ssh-agent",
                "run `{command}` to add it to ssh-agent; it prompts for the passphrase",
            ),
            "public": Case(
                "the key {path} cannot be used: it is the public key; set the private key",
                "set `key: {private}` under `ssh:` in the inventory",
            ),
            "mode": Case(
                "the key {path} cannot be used: {problem}", "make it readable only for you: {command}"
            ),
        },
    ),
    "CC-SSH-009": Entry(
        "error",
        "unknown host key",
        why=UNTRUSTED,
        what="Compare the fingerprint with the one that the node itself shows (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`), then connect once with ssh, or set `ssh: {host_keys: accept-new}`.",
        do="Log in once with `ssh` and compare the fingerprint, or set `host_keys: accept-new`",
        cases={
            "": Case(
                "{server}'s host key is not known on this machine",
                "compare it with `{command}`, run from a network that you trust; then connect once with ssh, or set `host_keys: accept-new` under `ssh:` in the inventory to record new keys automatically",
            ),
            "openssh": Case(
                "the host key of {place} is not known",
                "run `{command}` once and compare the fingerprint, or set `ssh: {host_keys: accept-new}`",
            ),
        },
        texts=("Host key verification failed",),
    ),
    "CC-SSH-010": Entry(
        "error",
        "the host key has changed",
        why=UNTRUSTED,
        what="The node was reinstalled, the address now belongs to another machine, or another machine intercepts the connection. Once you know the reason: `ssh-keygen -R HOST`, then connect again.",
        do="Run the `ssh-keygen -R` that is shown, but only if you know that the machine was reinstalled",
        cases={
            "": Case(
                "{server}'s host key is not the one in {location}",
                "only if the node was reinstalled: {command}; otherwise another machine answers at this address",
            ),
            "openssh": Case(
                "the host key of {place} has changed",
                "if the node was reinstalled, run `ssh-keygen -R {known}` and connect once with `{command}`; otherwise find out why the key changed",
            ),
        },
        texts=("REMOTE HOST IDENTIFICATION HAS CHANGED!",),
    ),
    "CC-SSH-011": Entry(
        "error",
        "the host key is revoked",
        why=UNTRUSTED,
        what="known_hosts marks this key as `@revoked`, or RevokedHostKeys of the SSH configuration lists it or cannot be read: it must not be trusted, on any host.",
        do="Ask the person who maintains the list of revoked keys; never bypass it",
        cases={
            "openssh": Case(
                "the host key of {place} is revoked", "do not connect; ask the administrator of the node"
            ),
        },
    ),
    "CC-SSH-012": Entry(
        "error",
        "the new host key cannot be recorded",
        why=UNTRUSTED,
        what="`accept-new` trusts a key on first connection and must record it; the known_hosts file cannot be written.",
        do="Make known_hosts writable, or set another file with `ssh: {known_hosts: FILE}`",
        cases={
            "": Case(
                "cannot record {server}'s new host key in {path}",
                "make the file writable, or set another one as `known_hosts` under `ssh:` in the inventory",
            )
        },
    ),
    "CC-SSH-013": Entry(
        "error",
        "cannot open a connection to the node",
        why=UNREACHED,
        what="`ssh: {proxy_command: ...}` must connect its standard input and output to the node's SSH port. Run it by hand: it should print a line that starts with SSH-2.0.",
        do="Run the `proxy_command` by hand and read its error",
        cases={
            "lab": Case(
                "the lab could not connect to the node",
                "{heal}  # or `clusterctl lab status` to see what is broken",
            ),
            "openssh": Case(
                "the connection to {place} through {via} ended",
                "check the output of `{command}`: a machine in between may be off, unknown on this machine or reject the login; or the node is off",
            ),
        },
    ),
    "CC-SSH-014": Entry(
        "error",
        "the server refuses sessions",
        why=NO_LOGIN,
        what="Login works but running a command does not: too many sessions on the connection (MaxSessions), a forced command, or an account without a shell.",
        do="The cause is a forced command, an account without a shell, or `MaxSessions`: ask the server's administrator",
        cases={
            "": Case(
                "the SSH server refuses to run a command",
                "check MaxSessions, ForceCommand and the user's login shell on the node",
            )
        },
    ),
    "CC-SSH-015": Entry(
        "error",
        "the connection ended",
        why=UNREACHED,
        what="An open connection was closed by the other side or by the network.",
        do="Try again; if it happens again, check the node: `uptime`, `dmesg`",
        cases={
            "": Case(
                "the connection ended",
                "the node, its sshd or the network in between went away; programs on the node may still be running",
            )
        },
    ),
    "CC-SSH-016": Entry(
        "error",
        "the connection stopped responding",
        why=UNREACHED,
        what="No data arrived for longer than a healthy node ever needs: the network is gone, or the node is frozen.",
        do="The network or the node hangs; the run continues, and `clusterctl attach` reconnects to it",
        cases={
            "": Case(
                "no data received for {limit:g} s",
                "the node or the network in between stopped responding; programs on the node may still be running",
            )
        },
    ),
    "CC-SSH-017": Entry(
        "error",
        "the login shell did not run the command",
        why=NO_LOGIN,
        what="The account's login shell exited or printed text instead of running `/bin/sh`. Look for `exit` or a program that never ends in its startup files (.bashrc, .profile, config.fish).",
        do="A startup file (`.bashrc`, `.cshrc`) starts another shell or a program that waits: let it return early without a terminal",
        cases={
            "flood": Case(
                "the login shell prints without end before the interpreter starts",
                "the startup files of the login shell must print nothing unless it is interactive",
            ),
            "stdin": Case(
                "the login shell's startup files read the input for the interpreter",
                "the login shell's startup files (.bashrc, config.fish, .cshrc) must not read from stdin",
            ),
        },
    ),
    "CC-SSH-018": Entry(
        "error",
        "the bastion cannot be used",
        why=UNREACHED,
        what="The nodes behind the bastion were not tried. The message shows the bastion, and the evidence starts with the code of the problem there: fix it as if the bastion were a node. Its user, port and key come from its own part of the SSH configuration, or from `jump: user@host:port`.",
        do="Fix the bastion first: the message shows its problem; test with `ssh BASTION`",
        cases={
            "ended": Case(
                "the connection to the bastion {bastion} ended",
                "the bastion, its sshd or the network to it went away: try again",
            ),
            "": Case("the bastion {bastion} cannot be used: {problem}", Same("{way_out}")),
            "inner": Case(Same("{problem}"), Same("{way_out}")),
        },
    ),
    "CC-SSH-019": Entry(
        "error",
        "the SSH configuration cannot be used",
        why=UNREACHED,
        what="`ssh -G HOST` fails, gives an invalid host or user, or results in a loop of bastions. The evidence is the error of ssh. `ssh: {config: FILE}` reads another file, `config: none` reads none.",
        do="Fix the line that ssh reports; `ssh: {config: none}` reads no configuration",
        cases={
            "": Case(
                "ssh cannot read its configuration",
                "make `{command}` work; or set `config: none` under `ssh:` in the inventory to read no configuration",
            ),
            "names": Case(
                "invalid host or user name in the SSH configuration",
                "correct it in ~/.ssh/config; hosts and users may contain only letters, digits and . _ -",
            ),
            "circle": Case(
                "the bastions to the node form a loop, or there are too many",
                "exclude the bastion itself from its rule, for example `Host *.cluster !bastion`; `ssh -G NAME` shows its ProxyJump",
            ),
            "inner": Case(Same("{problem}"), Same("{way_out}")),
        },
    ),
    "CC-SSH-020": Entry(
        "error",
        "the bastion does not allow forwarding",
        why=UNREACHED,
        what="The login at the bastion works, but its sshd_config forbids connections to other machines (AllowTcpForwarding, PermitOpen, or `restrict` before the key in authorized_keys).",
        do="Set `AllowTcpForwarding yes` on the bastion, with no `restrict` before the key; or use another `jump`",
        cases={
            "": Case(
                "the bastion {bastion} does not allow forwarding to {address}",
                "allow it with AllowTcpForwarding and PermitOpen in the bastion's sshd_config; if that is not possible, use `proxy_command`",
            )
        },
    ),
    "CC-SSH-021": Entry(
        "error",
        "the host certificate is not valid",
        why=UNTRUSTED,
        what="A `@cert-authority` line of known_hosts trusts the authority that signed the certificate, but the certificate has expired, is for other names, or is not a host certificate. It must contain the host name that SSH uses: `host`, or the HostName or HostKeyAlias of your SSH configuration.",
        do="Its names or its dates do not match: renew it, or correct `host:`",
        cases={
            "": Case(
                "the host certificate of {place} is not valid",
                "let the certificate authority sign its host key again, for the name in the inventory or its HostName (`ssh-keygen -s CA -h -n NAME -I ID`); or set HostKeyAlias in ~/.ssh/config",
            )
        },
    ),
    "CC-SSH-022": Entry(
        "warning",
        "the private key is readable by others",
        why="Anyone who can read it can log in as you; ssh ignores such a key.",
        what="A private key file on this machine is readable by its group or by everybody. `ssh` ignores it (`WARNING: UNPROTECTED PRIVATE KEY FILE!`), so a login that works with clusterctl fails with ssh.",
        do="Run `chmod 600` on the key file, as shown",
        cases={"": Case(fix=Same("chmod 600 {file}"))},
        texts=("UNPROTECTED PRIVATE KEY FILE!",),
    ),
    "CC-SSH-023": Entry(
        "info",
        "the login shell prints text",
        why="clusterctl skips this text, but rsync, scp and sftp break: `is your shell clean?`.",
        what="A startup file of the login shell (.bashrc, .cshrc, config.fish) writes to standard output without a terminal. rsync then prints `protocol version mismatch -- is your shell clean?`, sftp `Received message too long`. Print only in interactive shells: `case $- in *i*) echo hello;; esac`.",
        do="Let `.bashrc` print only in interactive shells: `case $- in *i*) ;; *) return;; esac` as its first line",
        cases={"": Case(fix=Same("{command}"))},
        texts=("is your shell clean?",),
    ),
    "CC-SSH-030": Entry(
        "error",
        "the ssh program cannot be used",
        why=UNREACHED,
        what="With `ssh: {transport: openssh}` the program `ssh` of this machine connects to the nodes. It is not installed, or rejects a line of ~/.ssh/config or a value under `ssh:`; its error is shown.",
        do="Install the OpenSSH client, or remove `transport: openssh`",
        cases={
            "program": Case(
                "the program ssh cannot be run on this machine",
                "install the OpenSSH client, or remove `transport: openssh`",
            ),
            "settings": Case(
                "ssh rejects its settings",
                "correct ~/.ssh/config, or the settings under `ssh:` in the inventory",
            ),
        },
    ),
    "CC-SSH-031": Entry(
        "error",
        "the ssh program failed",
        why=UNREACHED,
        what="With `ssh: {transport: openssh}` the program `ssh` of this machine exited before login, with an error that has no code of its own. Run the same ssh by hand with `-v`.",
        do="Run `ssh NODE true` by hand: it prints the reason",
        cases={
            "": Case("ssh to {place} ended with status {status}", CHECK_OUTPUT),
            "signal": Case("ssh to {place} got signal {signal}", CHECK_OUTPUT),
        },
    ),
    "CC-SSH-032": Entry(
        "error",
        "the node does not allow forwarding",
        what="`clusterctl forward` connects by SSH's port forwarding. The login works and the program accepts connections on the node, but its sshd forbids forwarding (AllowTcpForwarding, PermitOpen, or `restrict` before the key in authorized_keys).",
        do="Set `AllowTcpForwarding local` on the node, with no `restrict` before the key",
        cases={
            "": Case(
                "the sshd of {server} does not allow forwarding to {address}, port {port}",
                "allow it with `AllowTcpForwarding local` in the node's sshd_config; if that is not possible, use the program on the node: {command}",
            )
        },
    ),
    "CC-KEYS-001": Entry(
        "error",
        "wrong password, or the server accepts no password for this account (common for root)",
        do="Try the password with `ssh`; many servers accept only keys for root: use another user",
        cases={
            "": Case(
                "{server} rejected this password for {user}",
                "check `user` under `ssh:` in the inventory: the password must be that user's; some servers accept none for root (PermitRootLogin)",
            )
        },
    ),
    "CC-KEYS-002": Entry(
        "error",
        "the server accepts no passwords; the node's administrator must install the key",
        do="Give your public key to the node's administrator",
        cases={
            "": Case(
                "{server} accepts no passwords",
                "give the public key to the node's administrator: it belongs in ~/.ssh/authorized_keys there",
            )
        },
    ),
    "CC-KEYS-003": Entry(
        "error",
        "the password was right, but the key could not be written: the home directory is read-only or full",
        do="Free space in the account's home directory on the node, or make it writable",
        cases={
            "shell": Case(
                "the node's shell did not accept the key: {reason}",
                "log in to the node by ssh with the password, and check its shell",
            ),
            "": Case(
                "the key could not be installed: {detail}",
                "the account needs write permission for its home directory, and must own ~/.ssh",
            ),
        },
    ),
    "CC-KEYS-004": Entry(
        "error",
        "the key is in authorized_keys, but the server does not accept it: others can write to the home directory, or sshd reads another file",
        do="Run `chmod go-w ~; chmod 700 ~/.ssh` on the node",
        cases={
            "": Case(
                "the key is in {file}, but the node does not accept it",
                "its sshd may read another file (AuthorizedKeysFile), or reject this kind of key (PubkeyAcceptedAlgorithms)",
            ),
            "modes": Case(
                "the key is in {file}, but the node does not accept it",
                "sshd ignores the file as long as others can write to the home directory; log in and run: chmod go-w ~",
            ),
        },
    ),
    "CC-KEYS-005": Entry(
        "error",
        "your own ssh logs in to this node (`transport: openssh`, or a way that needs it): use ssh-copy-id",
        do="Run `ssh-copy-id NODE`",
        cases={
            "": Case(
                "your own ssh logs in to this node; init --keys does not support that",
                Same("{command}"),
            )
        },
    ),
    "CC-KEYS-006": Entry(
        "error",
        "the inventory has several keys; push them one by one",
        do="Push them one by one with `--nodes`",
        cases={
            "": Case(
                "the inventory has several keys: {names}", "push them one by one, with --key FILE and --nodes"
            )
        },
    ),
    "CC-KEYS-007": Entry(
        "error",
        "no key exists, and its creation was not confirmed",
        do="Run `ssh-keygen -t ed25519`",
        cases={"": Case("the key {path} does not exist", "add -y to create one, or run {command}")},
    ),
    "CC-KEYS-008": Entry(
        "error",
        "the variable in `--password-from` is not set",
        do="Export the variable first",
        cases={
            "": Case("--password-from: {variable} is not set", Same("read -rs {variable}; export {variable}"))
        },
    ),
    "CC-KEYS-009": Entry(
        "error",
        "the key cannot be created or read",
        do="Check path and permissions of the key file",
        cases={"": Case("the key {path} cannot be used", "create it by hand: {command}")},
    ),
    "CC-KEYS-010": Entry(
        "error",
        "a password is needed, and there is no terminal to prompt for it",
        do="Run it in a terminal, or use `--password-from NAME`",
        cases={
            "": Case(
                "the node needs a password, and there is no terminal to prompt for it",
                "run it in a terminal, or put the password into a variable and set: --password-from VARIABLE",
            )
        },
    ),
    "CC-KEYS-011": Entry(
        "error",
        "no password was given for this node, so it was skipped",
        do="Run the command again for this node",
        cases={"": Case("skipped: no password was given", "run the command again")},
    ),
}
