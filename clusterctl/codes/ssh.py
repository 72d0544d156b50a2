"""Reaching a node, installing keys: CC-SSH, CC-KEYS."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

UNREACHED = Text(
    "A node that cannot be reached cannot take part, and a run waits for all of its nodes.",
    "连接不上的节点无法参与训练，而 run 需要等待所有节点。",
)
UNTRUSTED = Text(
    "Whoever answers at that address could read the code and the secrets of the job.",
    "该地址上应答的机器可能会读到作业的代码和密钥。",
)
NO_LOGIN = Text("Without a login nothing can be asked of the node.", "无法登录，就无法对该节点做任何检查。")

ENTRIES: Mapping[str, Entry] = {
    "CC-SSH-001": Entry(
        "error",
        Text("the host's name is not known here", "这台机器解析不出 `host` 里的名字"),
        why=UNREACHED,
        what=Text(
            "The name in `host:` is resolved on the machine where clusterctl runs. Write the address, or a name that `getent hosts NAME` finds here."
        ),
        do=Text(
            "Compare with `getent hosts NAME` on this machine, or write the address as `host:`",
            "在本机用 `getent hosts NAME` 核对，或者 `host:` 直接写地址",
        ),
        cases={
            "": Case(
                Text("the name {host} does not resolve"),
                Text("correct `host` in the inventory, or write the node's IP address there"),
            ),
            "openssh": Case(
                Text("ssh cannot resolve {host}"),
                Text("correct `host` in the inventory, or give it a HostName in ~/.ssh/config"),
            ),
            "tunnel": Case(
                Text("the bastion {bastion} cannot connect to {address}: {reason}"),
                Text("see from the bastion whether the node is up: {command}"),
            ),
        },
        texts=("Could not resolve hostname",),
    ),
    "CC-SSH-002": Entry(
        "error",
        Text("the SSH port is closed", "SSH 端口关着"),
        why=UNREACHED,
        what=Text(
            "The machine answered and refused the connection: sshd does not run, listens on another port (`ssh: {port: N}`), or has blocked this address for a while after failed logins (PerSourcePenalties)."
        ),
        do=Text(
            "Is `port` right, does sshd run? After failed logins wait some minutes (PerSourcePenalties)",
            "`port` 对吗？`sshd` 在跑吗？刚登录失败过几次就等几分钟（PerSourcePenalties）",
        ),
        cases={
            "": Case(
                Text("{target} refused the connection"),
                Text("start sshd on the node, or correct `host` and `ssh.port` in the inventory"),
            ),
            "openssh": Case(
                Text("{place} refused the connection"),
                Text("start sshd on the node, or correct `host` and `ssh.port` in the inventory"),
            ),
            "tunnel": Case(
                Text("the bastion {bastion} cannot connect to {address}: {reason}"),
                Text("see from the bastion whether the node is up: {command}"),
            ),
        },
        texts=("Connection refused",),
    ),
    "CC-SSH-003": Entry(
        "error",
        Text("the node cannot be reached", "连不上这个节点"),
        why=UNREACHED,
        what=Text(
            "The network has no way to the address: the machine is off, the address is wrong, a VPN is down, or a firewall forbids it."
        ),
        do=Text(
            "Is the machine on, the address right, the VPN up? Try `ping` and `ssh`",
            "机器开着吗？地址对吗？VPN 连了吗？先用 `ping`、`ssh` 试试",
        ),
        cases={
            "": Case(
                Text("there is no way to {target}"),
                Text("see what `ip route get` says about {address}, and whether that network is up"),
            ),
            "openssh": Case(
                Text("there is no way to {place}"),
                Text("see what `ip route get` says about {host}, and whether that network is up"),
            ),
            "tunnel": Case(
                Text("the bastion {bastion} cannot connect to {address}: {reason}"),
                Text("see from the bastion whether the node is up: {command}"),
            ),
        },
        texts=(
            "No route to host",
            "Network is unreachable",
        ),
    ),
    "CC-SSH-004": Entry(
        "error",
        Text("the node took too long", "节点太久没有回应"),
        why=UNREACHED,
        what=Text(
            "One step exceeded its limit; the message names the step. A silent network drops packets (firewall, machine off); a slow login points at the node's name server or a hanging home directory. If it is the Python that did not answer, something in the login shell's start files (.bashrc, .profile, config.fish) reads from stdin, waits, or replaces the shell (`exec fish`)."
        ),
        do=Text(
            "The message names the step. No answer at all: firewall, or the machine is off. A slow login: the node's DNS, or a home that hangs. Python did not answer: .bashrc reads stdin or calls `exec`",
            "报错里写了卡在哪一步。毫无回应：防火墙，或者没开机；登录很慢：节点上的 DNS，或者家目录卡住了；Python 没有响应：.bashrc 读取了 stdin，或调用了 `exec`",
        ),
        cases={
            "tunnel": Case(
                Text("the bastion {bastion} got no connection to {address} within {limit:g} s"),
                Text("the node is off, or a firewall between the bastion and the node drops the packets"),
            ),
            "name": Case(
                Text("the name {host} was not resolved within {limit:g} s"),
                Text("see why `{command}` is slow, or write the node's IP address as its host"),
            ),
            "connect": Case(
                Text("no connection to {target} within {limit:g} s"),
                Text(
                    "the node is off, or a firewall drops the packets; see whether it answers from its own network"
                ),
            ),
            "handshake": Case(
                Text("no {waited_for} from the server at {address} within {limit:g} s"),
                Text(
                    "something accepts connections there but does not go on: the node may be overloaded or stopped"
                ),
            ),
            "proxy": Case(
                Text(
                    "no greeting from the node through the proxy command within {limit:g} s: the node is off, or its sshd does not answer"
                ),
                Text("see whether the node is up; then run the proxy command by hand: {command}"),
            ),
            "step": Case(
                Text("no {step} within {limit:g} s"),
                Text(
                    "the node may be overloaded or stopped; look whether an ordinary `ssh` to it still answers"
                ),
            ),
            "interpreter": Case(
                Text("{python} did not answer within {limit:g} s"),
                Text(
                    "look for what reads from stdin, waits, or replaces the shell (`exec fish`) in the login shell's start-up files (.bashrc, .profile, .zshenv, config.fish); or the file system is slow"
                ),
            ),
            "verb": Case(Text("no answer from {verb} in time")),
            "openssh-silent": Case(
                Text("ssh had no answer from {place} in time"),
                Text("the node is off, overloaded or stopped, or a firewall drops the packets"),
            ),
            "openssh-login": Case(
                Text("ssh was not let in at {address} within {limit:g} s"),
                Text("see what `{command}` waits for"),
            ),
        },
        texts=("Connection timed out",),
    ),
    "CC-SSH-005": Entry(
        "error",
        Text("no SSH server answers at this port", "这个端口上不是 SSH 服务"),
        why=UNREACHED,
        what=Text("Something else listens there. Correct `host:` or `ssh: {port: N}`."),
        do=Text(
            "Something else listens there: correct `host:` or `ssh: {port: N}`",
            "那里跑的是别的东西：改正 `host:` 或 `ssh: {port: N}`",
        ),
        cases={
            "": Case(
                Text("what answers at {address} is not an SSH server"),
                Text("correct `host` and `ssh.port` in the inventory"),
            ),
            "openssh": Case(
                Text("what answers at {place} is not an SSH server"),
                Text("correct `host` and `ssh.port` in the inventory"),
            ),
        },
    ),
    "CC-SSH-006": Entry(
        "error",
        Text("the SSH server ended the connection", "SSH 服务主动断开了连接"),
        why=UNREACHED,
        what=Text(
            "The server closed before login, and did so again and again for 25 s; the evidence says how often it was tried. Often it has too many logins under way (MaxStartups), holds earlier failures against this address (PerSourcePenalties), forbids it, or shares no algorithm with this side, which is not tried again."
        ),
        do=Text(
            "The server is busy or holds your address back: raise `MaxStartups`, see [bastions](bastions.md#servers-that-are-busy)",
            "服务端太忙，或者暂时封了你的地址：把 `MaxStartups` 调大，见[跳板机](bastions.md#服务端太忙)",
        ),
        cases={
            "algorithms": Case(
                Text("the server at {address} shares no algorithm with us"),
                Text("update the SSH server on {server}"),
            ),
            "": Case(
                Text("the server at {address} ended the connection {when}"),
                Text(
                    "it may limit logins under way: raise MaxStartups in its sshd_config (100:30:200), see what its log says, and wait if PerSourcePenalties holds something against this machine"
                ),
            ),
            "openssh": Case(
                Text("the server at {place} ended the connection"),
                Text(
                    "it may limit connections (MaxStartups, PerSourcePenalties): wait a little, and read its log"
                ),
            ),
        },
        texts=(
            "kex_exchange_identification: Connection closed by remote host",
            "Connection reset by peer",
        ),
    ),
    "CC-SSH-007": Entry(
        "error",
        Text("no key was accepted", "密钥不被接受"),
        why=NO_LOGIN,
        what=Text(
            "The node knows none of the keys that were offered for this user. `ssh-copy-id` puts a key there. If the key is there, sshd may refuse it for the modes of the home or of ~/.ssh: `chmod go-w ~; chmod 700 ~/.ssh`."
        ),
        do=Text(
            "`ssh-copy-id`, as shown, or `clusterctl keys push`; on the node `chmod go-w ~; chmod 700 ~/.ssh`",
            "照提示 `ssh-copy-id`，或者用 `clusterctl keys push`；在节点上 `chmod go-w ~; chmod 700 ~/.ssh`",
        ),
        cases={
            "": Case(
                Text("{server} does not let {user} in: {reason}"),
                Text(
                    "try `{command}`; `{copy_command}` installs a key, and `user` and `key` under `ssh:` in the inventory say which are used"
                ),
            ),
            "openssh": Case(
                Text("the node does not let us in by ssh"),
                Text("see what `{command}` says; Kerberos may want a `kinit`"),
            ),
            "no-terminal": Case(
                Text("the node does not let us in by ssh"),
                Text(
                    "without a terminal ssh may not ask for a password or code. Give the host `ControlMaster auto`, `ControlPath ~/.ssh/cm-%C` and `ControlPersist 8h` in ~/.ssh/config, run `{command}` once and then this again; or run this in a terminal. Kerberos wants a `kinit`"
                ),
            ),
        },
        texts=(
            "Permission denied (publickey)",
            "Too many authentication failures",
        ),
    ),
    "CC-SSH-008": Entry(
        "error",
        Text("the key cannot be used", "这把密钥用不了"),
        why=NO_LOGIN,
        what=Text(
            "The file named by `key:` is missing, unreadable, not a private key, or needs a passphrase that no agent has. `ssh-add FILE` gives it to the agent."
        ),
        do=Text(
            "Correct the path of `key`; a key with a passphrase goes into the agent by `ssh-add`",
            "改正 `key` 的路径；带口令的密钥先 `ssh-add`",
        ),
        cases={
            "": Case(
                Text("the key {path} cannot be used: {problem}"),
                Text("correct `key` under `ssh:` in the inventory"),
            ),
            "passphrase": Case(
                Text("the key {path} cannot be used: it has a passphrase, and ssh-agent does not hold it"),
                Text(
                    "run `{command}`, so that ssh-agent holds it; on a terminal you are asked for the passphrase"
                ),
            ),
            "public": Case(
                Text("the key {path} cannot be used: that is the public half; give the private key"),
                Text("write `key: {private}` under `ssh:` in the inventory"),
            ),
            "mode": Case(
                Text("the key {path} cannot be used: {problem}"),
                Text("make it readable for you alone: {command}"),
            ),
        },
    ),
    "CC-SSH-009": Entry(
        "error",
        Text("the host key is not known", "不认识这台机器的主机密钥"),
        why=UNTRUSTED,
        what=Text(
            "Compare the fingerprint with what the node itself shows (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`), then connect once with ssh, or write `ssh: {host_keys: accept-new}`."
        ),
        do=Text(
            "Log in once with `ssh` and compare the fingerprint, or `host_keys: accept-new`",
            "用 `ssh` 登录一次，核对指纹；或者写 `host_keys: accept-new`",
        ),
        cases={
            "": Case(
                Text("{server}'s host key is not known here"),
                Text(
                    "compare it with `{command}` asked from a network that you trust; then connect once with ssh, or set `host_keys: accept-new` under `ssh:` in the inventory to have new keys recorded"
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is not known"),
                Text(
                    "run `{command}` once and compare the fingerprint, or write `ssh: {host_keys: accept-new}`"
                ),
            ),
        },
        texts=("Host key verification failed",),
    ),
    "CC-SSH-010": Entry(
        "error",
        Text("the host key has changed", "主机密钥变了"),
        why=UNTRUSTED,
        what=Text(
            "The node was reinstalled, the address belongs to another machine now, or someone stands in between. When you know which: `ssh-keygen -R HOST`, then connect again."
        ),
        do=Text(
            "Only if you know that the machine was installed anew: the `ssh-keygen -R` that is shown",
            "确认机器重装过，才执行它给出的 `ssh-keygen -R`；否则可能连到了别的机器",
        ),
        cases={
            "": Case(
                Text("{server}'s host key is not the one in {location}"),
                Text(
                    "if the node was installed anew, and only then: {command}; otherwise something else answers in its place"
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is not the known one"),
                Text(
                    "find out why: was the node reinstalled? Then `ssh-keygen -R {known}`, and connect once by `{command}`"
                ),
            ),
        },
        texts=("REMOTE HOST IDENTIFICATION HAS CHANGED!",),
    ),
    "CC-SSH-011": Entry(
        "error",
        Text("the host key is revoked", "主机密钥已被吊销"),
        why=UNTRUSTED,
        what=Text(
            "known_hosts marks this key as `@revoked`: it must not be trusted any more, on whatever host it appears."
        ),
        do=Text(
            "Ask whoever keeps the list of revoked keys; never go around it", "问维护吊销列表的人，不要绕过去"
        ),
        cases={
            "": Case(
                Text("{server}'s host key is revoked by {location}"),
                Text("give the node a new host key; do not remove the line"),
            ),
            "refused": Case(
                Text("{server}'s host key is refused by RevokedHostKeys of the SSH configuration: {reason}"),
                Text("give it a new host key; where the file is missing, ask who keeps it"),
            ),
            "openssh": Case(
                Text("the host key of {place} is revoked"), Text("do not connect; ask who runs the node")
            ),
        },
    ),
    "CC-SSH-012": Entry(
        "error",
        Text("the new host key cannot be recorded", "新的主机密钥记不下来"),
        why=UNTRUSTED,
        what=Text(
            "`accept-new` trusts a key on first sight and must remember it; the known_hosts file cannot be written."
        ),
        do=Text(
            "Make known_hosts writable, or name another one as `ssh: {known_hosts: FILE}`",
            "让 known_hosts 可写，或者用 `ssh: {known_hosts: FILE}` 换一个文件",
        ),
        cases={
            "": Case(
                Text("{server}'s new host key cannot be recorded in {path}"),
                Text(
                    "make the file writable, or name another one as `known_hosts` under `ssh:` in the inventory"
                ),
            ),
        },
    ),
    "CC-SSH-013": Entry(
        "error",
        Text("the proxy command failed", "代理命令（proxy_command）失败"),
        why=UNREACHED,
        what=Text(
            "`ssh: {proxy_command: ...}` must connect its standard input and output with the node's SSH port. Run it by hand: it should print a line that begins with SSH-2.0."
        ),
        do=Text(
            "Run the `proxy_command` by hand: its own message says more",
            "手工执行一遍 `proxy_command`，看它自己报什么错",
        ),
        cases={
            "placeholder": Case(
                Text("`ssh.proxy_command` contains %{letter}, which means nothing here"),
                Text("use %h (host), %p (port), %r (user), and %% for a percent sign"),
            ),
            "not-started": Case(Text("`ssh.proxy_command` cannot be started")),
            "": Case(
                Text("the proxy command ended with status {status} during the {step}"),
                Text(
                    "the node may be off: see whether it is up; then run the proxy command by hand, %h and %p filled in: it must connect its stdin and stdout to the node's sshd"
                ),
            ),
            "openssh": Case(
                Text("the way to {place} through {via} ended"),
                Text(
                    "see what `{command}` says: what stands between may be down, unknown here or not let you in; or the node is down"
                ),
            ),
        },
    ),
    "CC-SSH-014": Entry(
        "error",
        Text("the server refuses sessions", "服务端不肯开会话"),
        why=NO_LOGIN,
        what=Text(
            "Login works, running a command does not: too many sessions on the connection (MaxSessions), a forced command, or an account without a shell."
        ),
        do=Text(
            "A forced command, an account without a shell, or `MaxSessions`: ask whoever keeps the server",
            "强制命令（forced command）、没有 shell 的账号，或者 `MaxSessions` 的限制：找管理员",
        ),
        cases={
            "": Case(
                Text("the SSH server refuses to run a command"),
                Text("look at MaxSessions, ForceCommand and the user's login shell on the node"),
            ),
        },
    ),
    "CC-SSH-015": Entry(
        "error",
        Text("the connection ended", "连接断了"),
        why=UNREACHED,
        what=Text("An open connection was closed by the other side or by the network."),
        do=Text(
            "Try again; if it comes back, look at the node: `uptime`, `dmesg`",
            "再试一次；反复出现就看节点的 `uptime`、`dmesg`",
        ),
        cases={
            "": Case(
                Text("the connection ended"),
                Text(
                    "the node, its sshd or the network between went away; what runs there may still be running"
                ),
            ),
        },
    ),
    "CC-SSH-016": Entry(
        "error",
        Text("the connection fell silent", "连接没有声音了"),
        why=UNREACHED,
        what=Text(
            "Nothing came back for longer than a healthy node ever takes: the network is gone, or the node is frozen."
        ),
        do=Text(
            "The network or the node hangs; a run goes on, `clusterctl attach` comes back to it",
            "网络或者节点卡住了；任务还在跑，之后用 `clusterctl attach` 接上",
        ),
        cases={
            "": Case(
                Text("nothing was heard for {limit:g} s"),
                Text(
                    "the node or the network between stopped answering; what runs there may still be running"
                ),
            ),
        },
    ),
    "CC-SSH-017": Entry(
        "error",
        Text("the login shell did not hand over", "登录 shell 没有把控制权交出来"),
        why=NO_LOGIN,
        what=Text(
            "The account's login shell ended or printed instead of running `/bin/sh`. Look for `exit` or an endless program in its start files (.bashrc, .profile, config.fish)."
        ),
        do=Text(
            "A start-up file (`.bashrc`, `.cshrc`) starts another shell or a program that waits: let it return early without a terminal",
            "启动文件（`.bashrc`、`.cshrc`）里又起了别的 shell 或者会等待的程序：没有终端时让它提前返回",
        ),
        cases={
            "flood": Case(
                Text("the login shell floods its output before the interpreter starts"),
                Text("let the start-up files of the login shell print nothing unless it is interactive"),
            ),
            "stdin": Case(
                Text("the login shell's start-up files read what was meant for the interpreter"),
                Text(
                    "let the login shell's start-up files (.bashrc, config.fish, .cshrc) read nothing from stdin"
                ),
            ),
        },
    ),
    "CC-SSH-018": Entry(
        "error",
        Text("the bastion cannot be used", "跳板机用不了"),
        why=UNREACHED,
        what=Text(
            "The nodes behind it were not even tried. The bastion is named, and the evidence begins with the code of what went wrong there: it is mended as if the bastion were a node. Its user, port and key come from its own part of the SSH configuration, or stand in `jump: user@host:port`."
        ),
        do=Text(
            "Mend the bastion first: the message says what is wrong there; `ssh BASTION`",
            "先解决跳板机的问题，报错里写了原因；用 `ssh 跳板机` 试试",
        ),
        cases={
            "ended": Case(
                Text("the connection to the bastion {bastion} ended"),
                Text("the bastion, its sshd or the network to it went away: try again"),
            ),
            "openssh": Case(
                Text("the bastion {bastion} does not answer"),
                Text(
                    "see what `{command}` says; if it is another one, correct `jump` or the ProxyJump of ~/.ssh/config"
                ),
            ),
            "": Case(Text("the bastion {bastion} cannot be used: {problem}"), Text("{way_out}")),
            "inner": Case(Text("{problem}"), Text("{way_out}")),
        },
    ),
    "CC-SSH-019": Entry(
        "error",
        Text("the SSH configuration is of no use", "SSH 配置文件有问题"),
        why=UNREACHED,
        what=Text(
            "`ssh -G HOST` fails, names a host or user that is none, or leads in a circle of bastions. What ssh says is the evidence. `ssh: {config: FILE}` reads another file, `config: none` reads none."
        ),
        do=Text(
            "Mend the line that ssh names; `ssh: {config: none}` reads no configuration",
            "改正 ssh 指出的那一行；`ssh: {config: none}` 表示不读配置",
        ),
        cases={
            "": Case(
                Text("ssh cannot read its configuration"),
                Text(
                    "make `{command}` work; or write `config: none` under `ssh:` in the inventory to do without"
                ),
            ),
            "names": Case(
                Text("the SSH configuration names what cannot be a host or user"),
                Text("correct it in ~/.ssh/config; hosts and users hold letters, digits and . _ - only"),
            ),
            "circle": Case(
                Text("the bastions on the way to the node form a circle, or are too many"),
                Text(
                    "exclude the bastion itself from its rule, such as `Host *.cluster !bastion`; `ssh -G NAME` shows its ProxyJump"
                ),
            ),
        },
    ),
    "CC-SSH-020": Entry(
        "error",
        Text("the bastion does not forward", "跳板机不允许转发"),
        why=UNREACHED,
        what=Text(
            "The login at the bastion works, and its sshd_config forbids connections onward (AllowTcpForwarding, PermitOpen, or `restrict` before the key in authorized_keys)."
        ),
        do=Text(
            "On the bastion `AllowTcpForwarding yes`, no `restrict` before the key; or another `jump`",
            "在跳板机上设 `AllowTcpForwarding yes`，authorized_keys 里密钥前不要写 `restrict`；或者换一个 `jump`",
        ),
        cases={
            "": Case(
                Text("the bastion {bastion} does not forward to {address}"),
                Text(
                    "AllowTcpForwarding and PermitOpen in the bastion's sshd_config must permit it; a bastion that forbids it for good may do with `proxy_command`"
                ),
            ),
        },
    ),
    "CC-SSH-021": Entry(
        "error",
        Text("the host certificate does not hold", "主机证书无效"),
        why=UNTRUSTED,
        what=Text(
            "A `@cert-authority` line of known_hosts trusts the authority that signed it, and the certificate has expired, is for other names, or is none for hosts. It must name the host as SSH goes there: `host`, or the HostName or HostKeyAlias of your SSH configuration."
        ),
        do=Text(
            "Its name or its time does not fit: renew it, or correct `host:`",
            "证书的名字或有效期不符：重新签发，或者改正 `host:`",
        ),
        cases={
            "": Case(
                Text("{server}'s host certificate does not hold"),
                Text(
                    "have the certificate authority sign its host key anew, for the name that is in the inventory or behind HostName (`ssh-keygen -s CA -h -n NAME -I ID`); or set HostKeyAlias in ~/.ssh/config"
                ),
            ),
        },
    ),
    "CC-SSH-022": Entry(
        "warning",
        Text("others may read the private key", "别人也能读你的私钥"),
        why=Text("Whoever reads it can log in as you; ssh itself refuses such a key."),
        what=Text(
            "A private key file on this machine may be read by its group or by everybody.\n`ssh` ignores it (`WARNING: UNPROTECTED PRIVATE KEY FILE!`), so that what works here fails there."
        ),
        do=Text("`chmod 600` of the key file, as shown", "照提示对密钥文件 `chmod 600`"),
        texts=("UNPROTECTED PRIVATE KEY FILE!",),
    ),
    "CC-SSH-023": Entry(
        "info",
        Text("the login shell prints", "登录 shell 会打印东西"),
        why=Text("clusterctl skips it, but rsync, scp and sftp break: `is your shell clean?`."),
        what=Text(
            "A start file of the login shell (.bashrc, .cshrc, config.fish) writes to standard output without a terminal.\nrsync says `protocol version mismatch -- is your shell clean?`, sftp `Received message too long`. Print only where somebody looks: `case $- in *i*) echo hello;; esac`."
        ),
        do=Text(
            "Let `.bashrc` print only on a terminal: `case $- in *i*) ;; *) return;; esac` as its first line",
            "让 `.bashrc` 只在交互时打印：第一行写 `case $- in *i*) ;; *) return;; esac`",
        ),
        texts=("is your shell clean?",),
    ),
    "CC-SSH-030": Entry(
        "error",
        Text("the ssh program cannot be used", "用不了 ssh 程序"),
        why=UNREACHED,
        what=Text(
            "With `ssh: {transport: openssh}` the nodes are reached by the program `ssh` of this machine. It is not installed, or refuses a line of ~/.ssh/config or a value under `ssh:`; what it says is shown."
        ),
        do=Text(
            "Install OpenSSH's client, or leave `transport: openssh` out",
            "安装 OpenSSH 客户端，或者去掉 `transport: openssh`",
        ),
        cases={
            "program": Case(
                Text("the program ssh cannot be run on this machine"),
                Text("install the OpenSSH client, or leave out `transport: openssh`"),
            ),
            "settings": Case(
                Text("ssh refuses its settings"),
                Text("correct ~/.ssh/config, or what the inventory says under `ssh:`"),
            ),
        },
    ),
    "CC-SSH-031": Entry(
        "error",
        Text("the ssh program failed", "ssh 程序失败"),
        why=UNREACHED,
        what=Text(
            "With `ssh: {transport: openssh}` the program `ssh` of this machine ended before it was let in, and said nothing that has a code of its own. Run the same ssh by hand with `-v`."
        ),
        do=Text(
            "Run `ssh NODE true` by hand: what it prints is the reason",
            "手工执行 `ssh NODE true`，它打印的就是原因",
        ),
        cases={
            "": Case(Text("ssh to {place} ended with status {status}"), Text("see what `{command}` says")),
            "signal": Case(Text("ssh to {place} got signal {signal}"), Text("see what `{command}` says")),
        },
    ),
    "CC-KEYS-001": Entry(
        "error",
        Text(
            "the password is wrong, or the server takes none for this account, as many do for root",
            "密码不对，或者服务端不许这个账号用密码",
        ),
        do=Text(
            "Try it by `ssh`; for root many servers take keys only: use another user",
            "用 `ssh` 试；很多服务端不许 root 用密码，换个用户",
        ),
        cases={
            "": Case(
                Text("{server} does not take this password for {user}"),
                Text(
                    "mind that `user` under `ssh:` in the inventory says whose password it is; some servers take none for root (PermitRootLogin)"
                ),
            ),
        },
    ),
    "CC-KEYS-002": Entry(
        "error",
        Text(
            "the server takes no passwords at all; whoever keeps the node must install the key",
            "服务端完全不接受密码",
        ),
        do=Text("Give your public key to whoever keeps the node", "把公钥交给管理员安装"),
        cases={
            "": Case(
                Text("{server} takes no passwords"),
                Text(
                    "give the public key to whoever keeps the node: it belongs into ~/.ssh/authorized_keys there"
                ),
            ),
        },
    ),
    "CC-KEYS-003": Entry(
        "error",
        Text(
            "the password was right, and the key could not be written into the account: a read-only or full home",
            "密码对了，但密钥写不进账号",
        ),
        do=Text(
            "Free room in the home there, or have it mounted writable", "在那边的家目录腾出空间，或者挂成可写"
        ),
        cases={
            "shell": Case(
                Text("the node's shell did not take the key: {reason}"),
                Text("log in to the node by ssh with the password, and look at what its shell does"),
            ),
            "": Case(
                Text("the key could not be installed: {detail}"),
                Text("the account's home must be writable for it, and ~/.ssh its own"),
            ),
        },
    ),
    "CC-KEYS-004": Entry(
        "error",
        Text(
            "the key is in authorized_keys, and the server does not accept it: others may write to the home, or sshd reads another file",
            "密钥写进了 authorized_keys，服务端却不认",
        ),
        do=Text("On the node `chmod go-w ~; chmod 700 ~/.ssh`", "在节点上 `chmod go-w ~; chmod 700 ~/.ssh`"),
        cases={
            "": Case(
                Text("the key is in {file}, and yet the node does not accept it"),
                Text(
                    "its sshd may read another file (AuthorizedKeysFile), or refuse this kind of key (PubkeyAcceptedAlgorithms)"
                ),
            ),
            "modes": Case(
                Text("the key is in {file}, and yet the node does not accept it"),
                Text(
                    "sshd ignores the file as long as others may write to the home; log in and: chmod go-w ~"
                ),
            ),
        },
    ),
    "CC-KEYS-005": Entry(
        "error",
        Text(
            "your own ssh enters this node (`transport: openssh`): use ssh-copy-id",
            "这个节点是用你自己的 ssh 登录的",
        ),
        do=Text("`ssh-copy-id NODE`", "用 `ssh-copy-id NODE`"),
        cases={
            "": Case(
                Text("your own ssh enters this node (transport: openssh); keys push does not"),
                Text("{command}"),
            ),
        },
    ),
    "CC-KEYS-006": Entry(
        "error",
        Text("the inventory names several keys; push them one after the other", "inventory 里有好几把密钥"),
        do=Text("Push them one after the other by `--nodes`", "用 `--nodes` 一把一把地推"),
        cases={
            "": Case(
                Text("the inventory names several keys: {names}"),
                Text("push them one after the other, with --key FILE and --nodes"),
            ),
        },
    ),
    "CC-KEYS-007": Entry(
        "error",
        Text("there is no key, and none was to be made", "没有密钥，也不许生成"),
        do=Text("`ssh-keygen -t ed25519`", "`ssh-keygen -t ed25519`"),
        cases={
            "": Case(Text("there is no key {path}"), Text("add -y to have one made, or run {command}")),
        },
    ),
    "CC-KEYS-008": Entry(
        "error",
        Text("the variable that `--password-from` names is not set", "`--password-from` 指的变量没有设置"),
        do=Text("Export the variable first", "先 export 这个变量"),
        cases={
            "": Case(
                Text("--password-from: {variable} is not set"), Text("read -rs {variable}; export {variable}")
            ),
        },
    ),
    "CC-KEYS-009": Entry(
        "error",
        Text("the key cannot be made or read", "密钥生成不了或读不了"),
        do=Text("Path and modes of the key file", "看密钥文件的路径和权限"),
        cases={
            "": Case(Text("the key {path} cannot be used"), Text("make it by hand: {command}")),
        },
    ),
    "CC-KEYS-010": Entry(
        "error",
        Text("a password is wanted, and there is no terminal to ask for it", "需要密码，但没有终端可问"),
        do=Text("At a terminal, or `--password-from NAME`", "在终端里执行，或者用 `--password-from NAME`"),
        cases={
            "": Case(
                Text("the node wants a password, and there is no terminal to ask for it"),
                Text(
                    "run it in a terminal, or put the password into a variable and name that: --password-from VARIABLE"
                ),
            ),
        },
    ),
    "CC-KEYS-011": Entry(
        "error",
        Text("no password was given for this node, so it was left out", "没给这个节点的密码，跳过了"),
        do=Text("Run it again for this node", "对这个节点再执行一次"),
        cases={
            "": Case(Text("left out: no password was given"), Text("run it again")),
        },
    ),
}
