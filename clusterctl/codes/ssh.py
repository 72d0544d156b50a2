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
                Text("the name {host} does not resolve", "无法解析名字 {host}"),
                Text(
                    "correct `host` in the inventory, or write the node's IP address there",
                    "改正 inventory 里的 `host`，或者直接写节点的 IP 地址",
                ),
            ),
            "openssh": Case(
                Text("ssh cannot resolve {host}", "ssh 无法解析 {host}"),
                Text(
                    "correct `host` in the inventory, or give it a HostName in ~/.ssh/config",
                    "改正 inventory 里的 `host`，或者在 ~/.ssh/config 里给它写 HostName",
                ),
            ),
            "tunnel": Case(
                Text(
                    "the bastion {bastion} cannot connect to {address}: {reason}",
                    "bastion {bastion} 无法连接 {address}：{reason}",
                ),
                Text(
                    "see from the bastion whether the node is up: {command}",
                    "在 bastion 上检查节点是否在线：{command}",
                ),
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
                Text("{target} refused the connection", "{target} 拒绝了连接"),
                Text(
                    "start sshd on the node, or correct `host` and `ssh.port` in the inventory",
                    "在节点上启动 sshd，或者改正 inventory 里的 `host` 和 `ssh.port`",
                ),
            ),
            "openssh": Case(
                Text("{place} refused the connection", "{place} 拒绝了连接"),
                Text(
                    "start sshd on the node, or correct `host` and `ssh.port` in the inventory",
                    "在节点上启动 sshd，或者改正 inventory 里的 `host` 和 `ssh.port`",
                ),
            ),
            "tunnel": Case(
                Text(
                    "the bastion {bastion} cannot connect to {address}: {reason}",
                    "bastion {bastion} 无法连接 {address}：{reason}",
                ),
                Text(
                    "see from the bastion whether the node is up: {command}",
                    "在 bastion 上检查节点是否在线：{command}",
                ),
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
                Text("there is no way to {target}", "无法到达 {target}"),
                Text(
                    "see what `ip route get` says about {address}, and whether that network is up",
                    "查看 `ip route get` 对 {address} 的输出，以及该网络是否连通",
                ),
            ),
            "openssh": Case(
                Text("there is no way to {place}", "无法到达 {place}"),
                Text(
                    "see what `ip route get` says about {host}, and whether that network is up",
                    "查看 `ip route get` 对 {host} 的输出，以及该网络是否连通",
                ),
            ),
            "tunnel": Case(
                Text(
                    "the bastion {bastion} cannot connect to {address}: {reason}",
                    "bastion {bastion} 无法连接 {address}：{reason}",
                ),
                Text(
                    "see from the bastion whether the node is up: {command}",
                    "在 bastion 上检查节点是否在线：{command}",
                ),
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
                Text(
                    "the bastion {bastion} got no connection to {address} within {limit:g} s",
                    "bastion {bastion} 在 {limit:g} 秒内没有连接上 {address}",
                ),
                Text(
                    "the node is off, or a firewall between the bastion and the node drops the packets",
                    "节点没开机，或者 bastion 与节点之间的防火墙丢弃了数据包",
                ),
            ),
            "name": Case(
                Text(
                    "the name {host} was not resolved within {limit:g} s",
                    "{limit:g} 秒内没有解析出名字 {host}",
                ),
                Text(
                    "see why `{command}` is slow, or write the node's IP address as its host",
                    "检查 `{command}` 为什么慢，或者把节点的 IP 地址写成 host",
                ),
            ),
            "connect": Case(
                Text("no connection to {target} within {limit:g} s", "{limit:g} 秒内没有连接上 {target}"),
                Text(
                    "the node is off, or a firewall drops the packets; see whether it answers from its own network",
                    "节点没开机，或者防火墙丢弃了数据包；检查它在自己的网络里是否有响应",
                ),
            ),
            "handshake": Case(
                Text(
                    "no {waited_for} from the server at {address} within {limit:g} s",
                    "{limit:g} 秒内没有收到 {address} 上服务端的 {waited_for}",
                ),
                Text(
                    "something accepts connections there but does not go on: the node may be overloaded or stopped",
                    "那里能建立连接，但没有后续响应：节点可能负载过高或已停止",
                ),
            ),
            "lab": Case(
                Text(
                    "no SSH greeting from the node within {limit:g} s: it is off or cut off",
                    "{limit:g} s 内没有收到节点的 SSH 问候：节点已关机或网络断开",
                ),
                Text(
                    "{heal}  # or `clusterctl lab status` to see what is broken",
                    "{heal}  # 用 `clusterctl lab status` 查看哪里坏了",
                ),
            ),
            "proxy": Case(
                Text(
                    "no greeting from the node through the proxy command within {limit:g} s: the node is off, or its sshd does not answer",
                    "通过代理命令在 {limit:g} 秒内没有收到节点的 SSH 版本信息：节点没开机，或者它的 sshd 没有响应",
                ),
                Text(
                    "see whether the node is up; then run the proxy command by hand: {command}",
                    "检查节点是否在线；然后手工执行代理命令：{command}",
                ),
            ),
            "step": Case(
                Text("no {step} within {limit:g} s", "{limit:g} 秒内没有完成 {step}"),
                Text(
                    "the node may be overloaded or stopped; look whether an ordinary `ssh` to it still answers",
                    "节点可能负载过高或已停止；检查普通的 `ssh` 是否有响应",
                ),
            ),
            "interpreter": Case(
                Text("{python} did not answer within {limit:g} s", "{python} 在 {limit:g} 秒内没有返回"),
                Text(
                    "look for what reads from stdin, waits, or replaces the shell (`exec fish`) in the login shell's start-up files (.bashrc, .profile, .zshenv, config.fish); or the file system is slow",
                    "在登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里找读取 stdin、等待或替换 shell 的命令（`exec fish`）；也可能是文件系统慢",
                ),
            ),
            "verb": Case(Text("no answer from {verb} in time", "{verb} 没有按时返回结果")),
            "openssh-silent": Case(
                Text("ssh had no answer from {place} in time", "ssh 没有按时收到 {place} 的响应"),
                Text(
                    "the node is off, overloaded or stopped, or a firewall drops the packets",
                    "节点没开机、负载过高或已停止，或者防火墙丢弃了数据包",
                ),
            ),
            "openssh-login": Case(
                Text(
                    "ssh was not let in at {address} within {limit:g} s",
                    "ssh 在 {limit:g} 秒内没有登录 {address}",
                ),
                Text("see what `{command}` waits for", "查看 `{command}` 在等待什么"),
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
                Text("what answers at {address} is not an SSH server", "{address} 上应答的不是 SSH 服务端"),
                Text(
                    "correct `host` and `ssh.port` in the inventory",
                    "改正 inventory 里的 `host` 和 `ssh.port`",
                ),
            ),
            "openssh": Case(
                Text("what answers at {place} is not an SSH server", "{place} 上应答的不是 SSH 服务端"),
                Text(
                    "correct `host` and `ssh.port` in the inventory",
                    "改正 inventory 里的 `host` 和 `ssh.port`",
                ),
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
                Text(
                    "the server at {address} shares no algorithm with us",
                    "{address} 上的服务端与本机没有共同的算法",
                ),
                Text("update the SSH server on {server}", "升级 {server} 上的 SSH 服务端"),
            ),
            "": Case(
                Text(
                    "the server at {address} ended the connection {when}",
                    "{address} 上的服务端断开了连接 {when}",
                ),
                Text(
                    "it may limit logins under way: raise MaxStartups in its sshd_config (100:30:200), see what its log says, and wait if PerSourcePenalties holds something against this machine",
                    "它可能限制了正在登录的连接数：在 sshd_config 里调高 MaxStartups（100:30:200），查看它的日志；如果 PerSourcePenalties 在惩罚本机，等待一段时间",
                ),
            ),
            "openssh": Case(
                Text("the server at {place} ended the connection", "{place} 上的服务端断开了连接"),
                Text(
                    "it may limit connections (MaxStartups, PerSourcePenalties): wait a little, and read its log",
                    "它可能限制了连接（MaxStartups、PerSourcePenalties）：稍等一会儿，并查看它的日志",
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
                Text("{server} does not let {user} in: {reason}", "{server} 拒绝 {user} 登录：{reason}"),
                Text(
                    "try `{command}`; `{copy_command}` installs a key, and `user` and `key` under `ssh:` in the inventory say which are used",
                    "试一下 `{command}`；用 `{copy_command}` 安装密钥；inventory 里 `ssh:` 下的 `user` 和 `key` 决定使用的账号和密钥",
                ),
            ),
            "openssh": Case(
                Text("the node does not let us in by ssh", "节点拒绝 ssh 登录"),
                Text(
                    "see what `{command}` says; Kerberos may want a `kinit`",
                    "查看 `{command}` 的输出；用 Kerberos 时可能需要 `kinit`",
                ),
            ),
            "no-terminal": Case(
                Text("the node does not let us in by ssh", "节点拒绝 ssh 登录"),
                Text(
                    "without a terminal ssh may not ask for a password or code. Give the host `ControlMaster auto`, `ControlPath ~/.ssh/cm-%C` and `ControlPersist 8h` in ~/.ssh/config, run `{command}` once and then this again; or run this in a terminal. Kerberos wants a `kinit`",
                    "没有终端时 ssh 不能询问密码或验证码。在 ~/.ssh/config 里给该主机写 `ControlMaster auto`、`ControlPath ~/.ssh/cm-%C` 和 `ControlPersist 8h`，先执行一次 `{command}`，再执行本命令；或者在终端里执行本命令。Kerberos 需要 `kinit`",
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
                Text("the key {path} cannot be used: {problem}", "密钥 {path} 不能用：{problem}"),
                Text("correct `key` under `ssh:` in the inventory", "改正 inventory 里 `ssh:` 下的 `key`"),
            ),
            "passphrase": Case(
                Text(
                    "the key {path} cannot be used: it has a passphrase, and ssh-agent does not hold it",
                    "密钥 {path} 不能用：它有口令，而 ssh-agent 没有持有它",
                ),
                Text(
                    "run `{command}`, so that ssh-agent holds it; on a terminal you are asked for the passphrase",
                    "执行 `{command}`，让 ssh-agent 持有它；在终端上会询问口令",
                ),
            ),
            "public": Case(
                Text(
                    "the key {path} cannot be used: that is the public half; give the private key",
                    "密钥 {path} 不能用：这是公钥；请指定私钥",
                ),
                Text(
                    "write `key: {private}` under `ssh:` in the inventory",
                    "在 inventory 的 `ssh:` 下写 `key: {private}`",
                ),
            ),
            "mode": Case(
                Text("the key {path} cannot be used: {problem}", "密钥 {path} 不能用：{problem}"),
                Text("make it readable for you alone: {command}", "设为只有自己可读：{command}"),
            ),
        },
    ),
    "CC-SSH-009": Entry(
        "error",
        Text("the host key is not known", "未知的主机密钥"),
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
                Text("{server}'s host key is not known here", "本机没有 {server} 的主机密钥记录"),
                Text(
                    "compare it with `{command}` asked from a network that you trust; then connect once with ssh, or set `host_keys: accept-new` under `ssh:` in the inventory to have new keys recorded",
                    "在可信的网络里执行 `{command}` 并比对；然后用 ssh 连接一次，或者在 inventory 的 `ssh:` 下设置 `host_keys: accept-new`，自动记录新密钥",
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is not known", "{place} 的主机密钥未知"),
                Text(
                    "run `{command}` once and compare the fingerprint, or write `ssh: {host_keys: accept-new}`",
                    "执行一次 `{command}` 并比对指纹，或者写 `ssh: {host_keys: accept-new}`",
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
                Text(
                    "{server}'s host key is not the one in {location}",
                    "{server} 的主机密钥与 {location} 处的不同",
                ),
                Text(
                    "if the node was installed anew, and only then: {command}; otherwise something else answers in its place",
                    "仅当节点确实重装过时执行：{command}；否则是别的机器在应答",
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is not the known one", "{place} 的主机密钥与记录的不同"),
                Text(
                    "find out why: was the node reinstalled? Then `ssh-keygen -R {known}`, and connect once by `{command}`",
                    "查明原因：节点重装过吗？重装过就执行 `ssh-keygen -R {known}`，再用 `{command}` 连接一次",
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
            "Ask whoever keeps the list of revoked keys; never go around it",
            "联系维护吊销列表的管理员，不要绕过",
        ),
        cases={
            "": Case(
                Text(
                    "{server}'s host key is revoked by {location}", "{server} 的主机密钥已被 {location} 吊销"
                ),
                Text(
                    "give the node a new host key; do not remove the line",
                    "给节点换新的主机密钥；不要删掉那一行",
                ),
            ),
            "refused": Case(
                Text(
                    "{server}'s host key is refused by RevokedHostKeys of the SSH configuration: {reason}",
                    "{server} 的主机密钥被 SSH 配置里的 RevokedHostKeys 拒绝：{reason}",
                ),
                Text(
                    "give it a new host key; where the file is missing, ask who keeps it",
                    "给它换新的主机密钥；如果文件不存在，联系维护该文件的人",
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is revoked", "{place} 的主机密钥已吊销"),
                Text("do not connect; ask who runs the node", "不要连接；联系节点的管理员"),
            ),
        },
    ),
    "CC-SSH-012": Entry(
        "error",
        Text("the new host key cannot be recorded", "无法记录新的主机密钥"),
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
                Text(
                    "{server}'s new host key cannot be recorded in {path}",
                    "{server} 的新主机密钥无法写入 {path}",
                ),
                Text(
                    "make the file writable, or name another one as `known_hosts` under `ssh:` in the inventory",
                    "给该文件写权限，或者在 inventory 的 `ssh:` 下用 `known_hosts` 指定另一个文件",
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
                Text(
                    "`ssh.proxy_command` contains %{letter}, which means nothing here",
                    "`ssh.proxy_command` 里的 %{letter} 在这里没有意义",
                ),
                Text(
                    "use %h (host), %p (port), %r (user), and %% for a percent sign",
                    "可用 %h（主机）、%p（端口）、%r（用户），百分号写 %%",
                ),
            ),
            "not-started": Case(
                Text("`ssh.proxy_command` cannot be started", "`ssh.proxy_command` 无法启动")
            ),
            "": Case(
                Text(
                    "the proxy command ended with status {status} during the {step}",
                    "代理命令在 {step} 阶段以状态 {status} 结束",
                ),
                Text(
                    "the node may be off: see whether it is up; then run the proxy command by hand, %h and %p filled in: it must connect its stdin and stdout to the node's sshd",
                    "节点可能没开机：检查它是否在线；然后填入 %h 和 %p 手工执行代理命令：它必须把 stdin 和 stdout 连接到节点的 sshd",
                ),
            ),
            "lab": Case(
                Text("the lab could not connect to the node", "lab 无法连接该节点"),
                Text(
                    "{heal}  # or `clusterctl lab status` to see what is broken",
                    "{heal}  # 用 `clusterctl lab status` 查看哪里坏了",
                ),
            ),
            "openssh": Case(
                Text("the way to {place} through {via} ended", "经 {via} 到 {place} 的连接断开"),
                Text(
                    "see what `{command}` says: what stands between may be down, unknown here or not let you in; or the node is down",
                    "查看 `{command}` 的输出：中间的机器可能没开机、在本机无法解析或拒绝登录；也可能是节点没开机",
                ),
            ),
        },
    ),
    "CC-SSH-014": Entry(
        "error",
        Text("the server refuses sessions", "服务端拒绝建立会话"),
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
                Text("the SSH server refuses to run a command", "SSH 服务端拒绝执行命令"),
                Text(
                    "look at MaxSessions, ForceCommand and the user's login shell on the node",
                    "检查节点上的 MaxSessions、ForceCommand 和该用户的登录 shell",
                ),
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
                Text("the connection ended", "连接断开"),
                Text(
                    "the node, its sshd or the network between went away; what runs there may still be running",
                    "节点、它的 sshd 或中间的网络断开了；节点上的程序可能仍在运行",
                ),
            ),
        },
    ),
    "CC-SSH-016": Entry(
        "error",
        Text("the connection fell silent", "连接无响应"),
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
                Text("nothing was heard for {limit:g} s", "{limit:g} 秒没有收到任何数据"),
                Text(
                    "the node or the network between stopped answering; what runs there may still be running",
                    "节点或中间的网络没有响应；节点上的程序可能仍在运行",
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
                Text(
                    "the login shell floods its output before the interpreter starts",
                    "登录 shell 在解释器启动前不断输出",
                ),
                Text(
                    "let the start-up files of the login shell print nothing unless it is interactive",
                    "登录 shell 的启动文件在非交互时不要输出任何内容",
                ),
            ),
            "stdin": Case(
                Text(
                    "the login shell's start-up files read what was meant for the interpreter",
                    "登录 shell 的启动文件读走了发给解释器的内容",
                ),
                Text(
                    "let the login shell's start-up files (.bashrc, config.fish, .cshrc) read nothing from stdin",
                    "登录 shell 的启动文件（.bashrc、config.fish、.cshrc）不能读取 stdin",
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
                Text("the connection to the bastion {bastion} ended", "到 bastion {bastion} 的连接断开"),
                Text(
                    "the bastion, its sshd or the network to it went away: try again",
                    "bastion、它的 sshd 或中间的网络断开了：再试一次",
                ),
            ),
            "openssh": Case(
                Text("the bastion {bastion} does not answer", "bastion {bastion} 没有响应"),
                Text(
                    "see what `{command}` says; if it is another one, correct `jump` or the ProxyJump of ~/.ssh/config",
                    "查看 `{command}` 的输出；如果不是这台机器，改正 `jump` 或 ~/.ssh/config 里的 ProxyJump",
                ),
            ),
            "": Case(
                Text(
                    "the bastion {bastion} cannot be used: {problem}", "bastion {bastion} 不能用：{problem}"
                ),
                Text("{way_out}"),
            ),
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
                Text("ssh cannot read its configuration", "ssh 无法读取它的配置"),
                Text(
                    "make `{command}` work; or write `config: none` under `ssh:` in the inventory to do without",
                    "让 `{command}` 能正常执行；或者在 inventory 的 `ssh:` 下写 `config: none`，不读取 SSH 配置",
                ),
            ),
            "names": Case(
                Text(
                    "the SSH configuration names what cannot be a host or user",
                    "SSH 配置里的主机名或用户名无效",
                ),
                Text(
                    "correct it in ~/.ssh/config; hosts and users hold letters, digits and . _ - only",
                    "在 ~/.ssh/config 里改正；主机名和用户名只能含字母、数字和 . _ -",
                ),
            ),
            "circle": Case(
                Text(
                    "the bastions on the way to the node form a circle, or are too many",
                    "到节点的 bastion 形成循环，或者级数太多",
                ),
                Text(
                    "exclude the bastion itself from its rule, such as `Host *.cluster !bastion`; `ssh -G NAME` shows its ProxyJump",
                    "把 bastion 自己从规则里排除，例如 `Host *.cluster !bastion`；`ssh -G NAME` 会显示它的 ProxyJump",
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
                Text(
                    "the bastion {bastion} does not forward to {address}",
                    "bastion {bastion} 不转发到 {address}",
                ),
                Text(
                    "AllowTcpForwarding and PermitOpen in the bastion's sshd_config must permit it; a bastion that forbids it for good may do with `proxy_command`",
                    "bastion 的 sshd_config 里 AllowTcpForwarding 和 PermitOpen 必须允许转发；如果 bastion 一直禁止，可以用 `proxy_command`",
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
                Text("{server}'s host certificate does not hold", "{server} 的主机证书无效"),
                Text(
                    "have the certificate authority sign its host key anew, for the name that is in the inventory or behind HostName (`ssh-keygen -s CA -h -n NAME -I ID`); or set HostKeyAlias in ~/.ssh/config",
                    "让证书颁发机构重新签发主机密钥，名字要与 inventory 里的或 HostName 一致（`ssh-keygen -s CA -h -n NAME -I ID`）；或者在 ~/.ssh/config 里设置 HostKeyAlias",
                ),
            ),
        },
    ),
    "CC-SSH-022": Entry(
        "warning",
        Text("others may read the private key", "别人也能读你的私钥"),
        why=Text(
            "Whoever reads it can log in as you; ssh itself refuses such a key.",
            "能读取它的人可以用你的身份登录；ssh 也会拒绝这样的密钥。",
        ),
        what=Text(
            "A private key file on this machine may be read by its group or by everybody.\n`ssh` ignores it (`WARNING: UNPROTECTED PRIVATE KEY FILE!`), so that what works here fails there."
        ),
        do=Text("`chmod 600` of the key file, as shown", "照提示对密钥文件 `chmod 600`"),
        cases={
            "": Case(fix=Text("chmod 600 {file}")),
        },
        texts=("UNPROTECTED PRIVATE KEY FILE!",),
    ),
    "CC-SSH-023": Entry(
        "info",
        Text("the login shell prints", "登录 shell 会打印东西"),
        why=Text(
            "clusterctl skips it, but rsync, scp and sftp break: `is your shell clean?`.",
            "clusterctl 会跳过它，但 rsync、scp 和 sftp 会出错：`is your shell clean?`。",
        ),
        what=Text(
            "A start file of the login shell (.bashrc, .cshrc, config.fish) writes to standard output without a terminal.\nrsync says `protocol version mismatch -- is your shell clean?`, sftp `Received message too long`. Print only where somebody looks: `case $- in *i*) echo hello;; esac`."
        ),
        do=Text(
            "Let `.bashrc` print only on a terminal: `case $- in *i*) ;; *) return;; esac` as its first line",
            "让 `.bashrc` 只在交互时打印：第一行写 `case $- in *i*) ;; *) return;; esac`",
        ),
        cases={
            "": Case(fix=Text("{command}")),
        },
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
                Text("the program ssh cannot be run on this machine", "本机无法运行 ssh 程序"),
                Text(
                    "install the OpenSSH client, or leave out `transport: openssh`",
                    "安装 OpenSSH 客户端，或者去掉 `transport: openssh`",
                ),
            ),
            "settings": Case(
                Text("ssh refuses its settings", "ssh 拒绝它的设置"),
                Text(
                    "correct ~/.ssh/config, or what the inventory says under `ssh:`",
                    "改正 ~/.ssh/config，或者 inventory 里 `ssh:` 下的内容",
                ),
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
            "": Case(
                Text("ssh to {place} ended with status {status}", "连接 {place} 的 ssh 以状态 {status} 结束"),
                Text("see what `{command}` says", "查看 `{command}` 的输出"),
            ),
            "signal": Case(
                Text("ssh to {place} got signal {signal}", "连接 {place} 的 ssh 收到信号 {signal}"),
                Text("see what `{command}` says", "查看 `{command}` 的输出"),
            ),
        },
    ),
    "CC-KEYS-001": Entry(
        "error",
        Text(
            "the password is wrong, or the server takes none for this account, as many do for root",
            "密码错误，或者服务端不允许该账户用密码登录（root 往往如此）",
        ),
        do=Text(
            "Try it by `ssh`; for root many servers take keys only: use another user",
            "用 `ssh` 试；很多服务端不许 root 用密码，换个用户",
        ),
        cases={
            "": Case(
                Text("{server} does not take this password for {user}", "{server} 不接受 {user} 的这个密码"),
                Text(
                    "mind that `user` under `ssh:` in the inventory says whose password it is; some servers take none for root (PermitRootLogin)",
                    "注意 inventory 里 `ssh:` 下的 `user` 决定用哪个账号的密码；有些服务端不接受 root 的密码（PermitRootLogin）",
                ),
            ),
        },
    ),
    "CC-KEYS-002": Entry(
        "error",
        Text(
            "the server takes no passwords at all; whoever keeps the node must install the key",
            "服务端完全不接受密码；须由节点的管理员安装密钥",
        ),
        do=Text("Give your public key to whoever keeps the node", "把公钥交给管理员安装"),
        cases={
            "": Case(
                Text("{server} takes no passwords", "{server} 不接受密码"),
                Text(
                    "give the public key to whoever keeps the node: it belongs into ~/.ssh/authorized_keys there",
                    "把公钥交给节点的管理员，写进节点的 ~/.ssh/authorized_keys",
                ),
            ),
        },
    ),
    "CC-KEYS-003": Entry(
        "error",
        Text(
            "the password was right, and the key could not be written into the account: a read-only or full home",
            "密码正确，但密钥无法写入该账户：家目录只读或已满",
        ),
        do=Text(
            "Free room in the home there, or have it mounted writable", "在那边的家目录腾出空间，或者挂成可写"
        ),
        cases={
            "shell": Case(
                Text(
                    "the node's shell did not take the key: {reason}", "节点的 shell 没有接受密钥：{reason}"
                ),
                Text(
                    "log in to the node by ssh with the password, and look at what its shell does",
                    "用 ssh 和密码登录节点，检查它的 shell",
                ),
            ),
            "": Case(
                Text("the key could not be installed: {detail}", "无法安装密钥：{detail}"),
                Text(
                    "the account's home must be writable for it, and ~/.ssh its own",
                    "该账号必须对家目录有写权限，~/.ssh 必须属于它自己",
                ),
            ),
        },
    ),
    "CC-KEYS-004": Entry(
        "error",
        Text(
            "the key is in authorized_keys, and the server does not accept it: others may write to the home, or sshd reads another file",
            "密钥已写入 authorized_keys，但服务端不接受：家目录可被别人写入，或者 sshd 读取另一个文件",
        ),
        do=Text("On the node `chmod go-w ~; chmod 700 ~/.ssh`", "在节点上 `chmod go-w ~; chmod 700 ~/.ssh`"),
        cases={
            "": Case(
                Text(
                    "the key is in {file}, and yet the node does not accept it",
                    "密钥已写入 {file}，但节点不接受",
                ),
                Text(
                    "its sshd may read another file (AuthorizedKeysFile), or refuse this kind of key (PubkeyAcceptedAlgorithms)",
                    "它的 sshd 可能读取别的文件（AuthorizedKeysFile），或者不接受这种密钥（PubkeyAcceptedAlgorithms）",
                ),
            ),
            "modes": Case(
                Text(
                    "the key is in {file}, and yet the node does not accept it",
                    "密钥已写入 {file}，但节点不接受",
                ),
                Text(
                    "sshd ignores the file as long as others may write to the home; log in and: chmod go-w ~",
                    "只要别人对家目录有写权限，sshd 就忽略该文件；登录后执行：chmod go-w ~",
                ),
            ),
        },
    ),
    "CC-KEYS-005": Entry(
        "error",
        Text(
            "your own ssh enters this node (`transport: openssh`): use ssh-copy-id",
            "该节点由你自己的 ssh 登录（`transport: openssh`）：用 ssh-copy-id",
        ),
        do=Text("`ssh-copy-id NODE`", "用 `ssh-copy-id NODE`"),
        cases={
            "": Case(
                Text(
                    "your own ssh enters this node (transport: openssh); keys push does not",
                    "该节点用你自己的 ssh 登录（transport: openssh）；keys push 不支持",
                ),
                Text("{command}"),
            ),
        },
    ),
    "CC-KEYS-006": Entry(
        "error",
        Text(
            "the inventory names several keys; push them one after the other",
            "inventory 里有多把密钥；请逐个推送",
        ),
        do=Text("Push them one after the other by `--nodes`", "用 `--nodes` 一把一把地推"),
        cases={
            "": Case(
                Text("the inventory names several keys: {names}", "inventory 里有多把密钥：{names}"),
                Text(
                    "push them one after the other, with --key FILE and --nodes",
                    "用 --key FILE 和 --nodes 逐个推送",
                ),
            ),
        },
    ),
    "CC-KEYS-007": Entry(
        "error",
        Text("there is no key, and none was to be made", "没有密钥，也不许生成"),
        do=Text("`ssh-keygen -t ed25519`", "`ssh-keygen -t ed25519`"),
        cases={
            "": Case(
                Text("there is no key {path}", "没有密钥 {path}"),
                Text("add -y to have one made, or run {command}", "加 -y 自动生成，或者执行 {command}"),
            ),
        },
    ),
    "CC-KEYS-008": Entry(
        "error",
        Text("the variable that `--password-from` names is not set", "`--password-from` 指的变量没有设置"),
        do=Text("Export the variable first", "先 export 这个变量"),
        cases={
            "": Case(
                Text("--password-from: {variable} is not set", "--password-from：变量 {variable} 没有设置"),
                Text("read -rs {variable}; export {variable}"),
            ),
        },
    ),
    "CC-KEYS-009": Entry(
        "error",
        Text("the key cannot be made or read", "密钥生成不了或读不了"),
        do=Text("Path and modes of the key file", "看密钥文件的路径和权限"),
        cases={
            "": Case(
                Text("the key {path} cannot be used", "密钥 {path} 不能用"),
                Text("make it by hand: {command}", "手工生成：{command}"),
            ),
        },
    ),
    "CC-KEYS-010": Entry(
        "error",
        Text("a password is wanted, and there is no terminal to ask for it", "需要密码，但没有终端可以输入"),
        do=Text("At a terminal, or `--password-from NAME`", "在终端里执行，或者用 `--password-from NAME`"),
        cases={
            "": Case(
                Text(
                    "the node wants a password, and there is no terminal to ask for it",
                    "节点要求密码，但没有终端可以输入",
                ),
                Text(
                    "run it in a terminal, or put the password into a variable and name that: --password-from VARIABLE",
                    "在终端里执行，或者把密码放进变量并指定：--password-from VARIABLE",
                ),
            ),
        },
    ),
    "CC-KEYS-011": Entry(
        "error",
        Text("no password was given for this node, so it was left out", "没有输入该节点的密码，已跳过"),
        do=Text("Run it again for this node", "对这个节点再执行一次"),
        cases={
            "": Case(
                Text("left out: no password was given", "已跳过：没有输入密码"),
                Text("run it again", "再执行一次"),
            ),
        },
    ),
}
