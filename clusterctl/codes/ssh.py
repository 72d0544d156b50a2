"""Reaching a node, installing keys: CC-SSH, CC-KEYS."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

UNREACHED = Text(
    "A node without a connection cannot take part, and a run waits for all of its nodes.",
    "无法连接的节点不能参与训练，而任务需要等待所有节点。",
)
UNTRUSTED = Text(
    "Another machine at that address could read the code and the secrets of the job.",
    "该地址上的其他机器可能会读取作业的代码和 secret。",
)
NO_LOGIN = Text("Without a login the node cannot be checked.", "无法登录，就无法检查该节点。")

BASTION_CANNOT_CONNECT = Text(
    "the bastion {bastion} cannot connect to {address}: {reason}",
    "跳板机 {bastion} 无法连接 {address}：{reason}",
)
CHECK_FROM_BASTION = Text(
    "check from the bastion whether the node is up: {command}", "在跳板机上检查节点是否在线：{command}"
)
START_SSHD = Text(
    "start sshd on the node, or correct `host` and `ssh.port` in the inventory",
    "在节点上启动 sshd，或者修改 inventory 里的 `host` 和 `ssh.port`",
)
CORRECT_HOST = Text(
    "correct `host` and `ssh.port` in the inventory", "修改 inventory 里的 `host` 和 `ssh.port`"
)
CHECK_OUTPUT = Text("check the output of `{command}`", "查看 `{command}` 的输出")

ENTRIES: Mapping[str, Entry] = {
    "CC-SSH-001": Entry(
        "error",
        Text("the host name does not resolve on this machine", "本机无法解析主机名"),
        why=UNREACHED,
        what=Text(
            "The name in `host:` is resolved on the machine where clusterctl runs. Use the address, or a name that `getent hosts NAME` finds on this machine.",
            "`host:` 中的名称在运行 clusterctl 的机器上解析。请使用地址，或者本机的 `getent hosts NAME` 能查到的名称。",
        ),
        do=Text(
            "Compare with `getent hosts NAME` on this machine, or set `host:` to the address",
            "在本机用 `getent hosts NAME` 核对，或者把 `host:` 设为地址",
        ),
        cases={
            "": Case(
                Text("the name {host} does not resolve", "无法解析主机名 {host}"),
                Text(
                    "correct `host` in the inventory, or set it to the node's IP address",
                    "修改 inventory 里的 `host`，或者设为节点的 IP 地址",
                ),
            ),
            "openssh": Case(
                Text("ssh cannot resolve {host}", "ssh 无法解析 {host}"),
                Text(
                    "correct `host` in the inventory, or set a HostName for it in ~/.ssh/config",
                    "修改 inventory 里的 `host`，或者在 ~/.ssh/config 里为它设置 HostName",
                ),
            ),
            "tunnel": Case(
                BASTION_CANNOT_CONNECT,
                CHECK_FROM_BASTION,
            ),
        },
        texts=("Could not resolve hostname",),
    ),
    "CC-SSH-002": Entry(
        "error",
        Text("the SSH port is closed", "SSH 端口未开放"),
        why=UNREACHED,
        what=Text(
            "The machine refused the connection: sshd is not running, listens on another port (`ssh: {port: N}`), or has blocked this address for a while after failed logins (PerSourcePenalties).",
            "机器拒绝了连接：sshd 没有运行、监听其他端口（`ssh: {port: N}`），或者在多次登录失败后暂时封禁了本机地址（PerSourcePenalties）。",
        ),
        do=Text(
            "Check that `port` is right and that sshd is running. After failed logins wait some minutes (PerSourcePenalties)",
            "检查 `port` 是否正确、sshd 是否在运行。登录失败后请等待几分钟（PerSourcePenalties）",
        ),
        cases={
            "": Case(
                Text("{target} refused the connection", "{target} 拒绝了连接"),
                START_SSHD,
            ),
            "openssh": Case(
                Text("{place} refused the connection", "{place} 拒绝了连接"),
                START_SSHD,
            ),
            "tunnel": Case(
                BASTION_CANNOT_CONNECT,
                CHECK_FROM_BASTION,
            ),
        },
        texts=("Connection refused",),
    ),
    "CC-SSH-003": Entry(
        "error",
        Text("no route to the node", "没有到节点的路由"),
        why=UNREACHED,
        what=Text(
            "The network has no route to the address: the machine is off, the address is wrong, a VPN is not connected, or a firewall blocks it.",
            "网络中没有到该地址的路由：机器未开机、地址错误、VPN 未连接，或者被防火墙阻断。",
        ),
        do=Text(
            "Check that the machine is on, the address is right and the VPN is connected. Try `ping` and `ssh`",
            "检查机器是否开机、地址是否正确、VPN 是否已连接。用 `ping` 和 `ssh` 测试",
        ),
        cases={
            "": Case(
                Text("no route to {target}", "没有到 {target} 的路由"),
                Text(
                    "check `ip route get` for {address}, and whether that network is up",
                    "用 `ip route get` 检查到 {address} 的路由，以及该网络是否连通",
                ),
            ),
            "openssh": Case(
                Text("no route to {place}", "没有到 {place} 的路由"),
                Text(
                    "check `ip route get` for {host}, and whether that network is up",
                    "用 `ip route get` 检查到 {host} 的路由，以及该网络是否连通",
                ),
            ),
            "tunnel": Case(
                BASTION_CANNOT_CONNECT,
                CHECK_FROM_BASTION,
            ),
        },
        texts=(
            "No route to host",
            "Network is unreachable",
        ),
    ),
    "CC-SSH-004": Entry(
        "error",
        Text("the node did not respond in time", "节点响应超时"),
        why=UNREACHED,
        what=Text(
            "One step exceeded its time limit; the message shows the step. If nothing responds, packets are dropped (firewall, machine off); a slow login is caused by the node's name server or a hanging home directory. If Python did not respond, something in the login shell's startup files (.bashrc, .profile, config.fish) reads from stdin, waits, or replaces the shell (`exec fish`).",
            "某个步骤超过了时限；报错里写明了是哪一步。完全没有响应：数据包被丢弃（防火墙、机器未开机）；登录很慢：节点的域名服务器慢，或者主目录卡住。如果是 Python 没有响应：登录 shell 的启动文件（.bashrc、.profile、config.fish）读取了 stdin、在等待，或者替换了 shell（`exec fish`）。",
        ),
        do=Text(
            "The message shows the step. No response at all: a firewall, or the machine is off. A slow login: the node's DNS, or a hanging home directory. Python did not respond: .bashrc reads stdin or calls `exec`",
            "报错里写明了是哪一步。完全没有响应：防火墙，或者机器未开机。登录很慢：节点的 DNS，或者主目录卡住。Python 没有响应：.bashrc 读取了 stdin，或者调用了 `exec`",
        ),
        cases={
            "tunnel": Case(
                Text(
                    "the bastion {bastion} could not connect to {address} within {limit:g} s",
                    "跳板机 {bastion} 在 {limit:g} 秒内没有连接上 {address}",
                ),
                Text(
                    "the node is off, or a firewall between the bastion and the node drops the packets",
                    "节点未开机，或者跳板机与节点之间的防火墙丢弃了数据包",
                ),
            ),
            "name": Case(
                Text(
                    "the name {host} was not resolved within {limit:g} s",
                    "{limit:g} 秒内没有解析出主机名 {host}",
                ),
                Text(
                    "check why `{command}` is slow, or set host to the node's IP address",
                    "检查 `{command}` 为什么慢，或者把 host 设为节点的 IP 地址",
                ),
            ),
            "connect": Case(
                Text("no connection to {target} within {limit:g} s", "{limit:g} 秒内没有连接上 {target}"),
                Text(
                    "the node is off, or a firewall drops the packets; check whether it responds in its own network",
                    "节点未开机，或者防火墙丢弃了数据包；检查它在自己的网络里是否有响应",
                ),
            ),
            "handshake": Case(
                Text(
                    "no {waited_for} from the server at {address} within {limit:g} s",
                    "{limit:g} 秒内没有收到 {address} 上服务端的 {waited_for}",
                ),
                Text(
                    "a program accepts connections there but does not respond: the node may be overloaded or stopped",
                    "可以建立连接，但没有后续响应：节点可能负载过高或已停止",
                ),
            ),
            "lab": Case(
                Text(
                    "no SSH greeting from the node within {limit:g} s: it is off or disconnected",
                    "{limit:g} 秒内没有收到节点的 SSH 版本信息：节点已关机或网络断开",
                ),
                Text(
                    "{heal}  # or `clusterctl lab status` to see what is broken",
                    "{heal}  # 或者用 `clusterctl lab status` 查看故障",
                ),
            ),
            "proxy": Case(
                Text(
                    "no greeting from the node through the proxy command within {limit:g} s: the node is off, or its sshd does not respond",
                    "通过代理命令在 {limit:g} 秒内没有收到节点的 SSH 版本信息：节点未开机，或者它的 sshd 没有响应",
                ),
                Text(
                    "check whether the node is up; then run the proxy command by hand: {command}",
                    "检查节点是否在线；然后手工执行代理命令：{command}",
                ),
            ),
            "step": Case(
                Text("no {step} within {limit:g} s", "{limit:g} 秒内没有完成 {step}"),
                Text(
                    "the node may be overloaded or stopped; check whether an ordinary `ssh` to it still works",
                    "节点可能负载过高或已停止；检查普通的 `ssh` 能否登录",
                ),
            ),
            "interpreter": Case(
                Text("{python} did not respond within {limit:g} s", "{python} 在 {limit:g} 秒内没有返回"),
                Text(
                    "look in the login shell's startup files (.bashrc, .profile, .zshenv, config.fish) for a command that reads from stdin, waits, or replaces the shell (`exec fish`); or the file system is slow",
                    "在登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里查找读取 stdin、等待或替换 shell 的命令（`exec fish`）；也可能是文件系统慢",
                ),
            ),
            "verb": Case(Text("no result from {verb} in time", "{verb} 没有按时返回结果")),
            "openssh-silent": Case(
                Text("ssh got no response from {place} in time", "ssh 没有按时收到 {place} 的响应"),
                Text(
                    "the node is off, overloaded or stopped, or a firewall drops the packets",
                    "节点未开机、负载过高或已停止，或者防火墙丢弃了数据包",
                ),
            ),
            "openssh-login": Case(
                Text(
                    "ssh could not log in at {address} within {limit:g} s",
                    "ssh 在 {limit:g} 秒内没有登录 {address}",
                ),
                Text("run `{command}` and check what it waits for", "执行 `{command}`，查看它在等待什么"),
            ),
        },
        texts=("Connection timed out",),
    ),
    "CC-SSH-005": Entry(
        "error",
        Text("no SSH server at this port", "该端口上不是 SSH 服务"),
        why=UNREACHED,
        what=Text(
            "Another program listens there. Correct `host:` or `ssh: {port: N}`.",
            "该端口上是其他程序。请修改 `host:` 或 `ssh: {port: N}`。",
        ),
        do=Text(
            "Another program listens there: correct `host:` or `ssh: {port: N}`",
            "该端口上是其他程序：修改 `host:` 或 `ssh: {port: N}`",
        ),
        cases={
            "": Case(
                Text("the program at {address} is not an SSH server", "{address} 上不是 SSH 服务端"),
                CORRECT_HOST,
            ),
            "openssh": Case(
                Text("the program at {place} is not an SSH server", "{place} 上不是 SSH 服务端"),
                CORRECT_HOST,
            ),
        },
    ),
    "CC-SSH-006": Entry(
        "error",
        Text("the SSH server closed the connection", "SSH 服务端断开了连接"),
        why=UNREACHED,
        what=Text(
            "The server closed the connection before login, repeatedly for 25 s; the evidence shows the number of attempts. Often it has too many logins in progress (MaxStartups), penalizes this address for earlier failures (PerSourcePenalties), or blocks it. If it has no algorithm in common with this machine, there is no second attempt.",
            "服务端在登录前断开连接，25 秒内反复如此；报错里写明了尝试次数。常见原因是正在进行的登录过多（MaxStartups）、因之前的失败惩罚本机地址（PerSourcePenalties），或者禁止该地址。如果服务端与本机没有共同的算法，则不会重试。",
        ),
        do=Text(
            "The server is busy or blocks your address for a while: raise `MaxStartups`, see [a node is not reached](../machines.md#a-node-is-not-reached)",
            "服务端太忙，或者暂时封禁了你的地址：调大 `MaxStartups`，见[节点连不上](../../en/machines.md#a-node-is-not-reached)",
        ),
        cases={
            "algorithms": Case(
                Text(
                    "the server at {address} has no algorithm in common with this machine",
                    "{address} 上的服务端与本机没有共同的算法",
                ),
                Text("update the SSH server on {server}", "升级 {server} 上的 SSH 服务端"),
            ),
            "": Case(
                Text(
                    "the server at {address} closed the connection {when}",
                    "{address} 上的服务端断开了连接{when}",
                ),
                Text(
                    "it may limit logins in progress: raise MaxStartups in its sshd_config (100:30:200), check its log, and wait if PerSourcePenalties blocks this machine",
                    "它可能限制了同时进行的登录数：在 sshd_config 里调高 MaxStartups（100:30:200），查看它的日志；如果 PerSourcePenalties 封禁了本机，请等待一段时间",
                ),
            ),
            "openssh": Case(
                Text("the server at {place} closed the connection", "{place} 上的服务端断开了连接"),
                Text(
                    "it may limit connections (MaxStartups, PerSourcePenalties): wait a little, and check its log",
                    "它可能限制了连接（MaxStartups、PerSourcePenalties）：稍等片刻，并查看它的日志",
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
        Text("no key was accepted", "密钥未被接受"),
        why=NO_LOGIN,
        what=Text(
            "The node accepts none of the keys that were offered for this user. `ssh-copy-id` installs a key. If the key is installed, sshd may ignore it because of the permissions of the home directory or ~/.ssh: `chmod go-w ~; chmod 700 ~/.ssh`.",
            "节点不接受为该用户提供的任何密钥。用 `ssh-copy-id` 安装密钥。如果密钥已安装，sshd 可能因为主目录或 ~/.ssh 的权限而忽略它：`chmod go-w ~; chmod 700 ~/.ssh`。",
        ),
        do=Text(
            "Run `ssh-copy-id`, as shown, or `clusterctl init --keys`; on the node `chmod go-w ~; chmod 700 ~/.ssh`",
            "按提示执行 `ssh-copy-id`，或者用 `clusterctl init --keys`；在节点上执行 `chmod go-w ~; chmod 700 ~/.ssh`",
        ),
        cases={
            "": Case(
                Text(
                    "{server} rejected the login of {user}: {reason}", "{server} 拒绝 {user} 登录：{reason}"
                ),
                Text(
                    "try `{command}`; `{copy_command}` installs a key; `user` and `key` under `ssh:` in the inventory select the account and the key",
                    "先试 `{command}`；用 `{copy_command}` 安装密钥；inventory 里 `ssh:` 下的 `user` 和 `key` 决定使用的账号和密钥",
                ),
            ),
            "openssh": Case(
                Text("the node rejected the login of ssh", "节点拒绝 ssh 登录"),
                Text(
                    "check the output of `{command}`; Kerberos may need a `kinit`",
                    "查看 `{command}` 的输出；用 Kerberos 时可能需要 `kinit`",
                ),
            ),
            "no-terminal": Case(
                Text("the node rejected the login of ssh", "节点拒绝 ssh 登录"),
                Text(
                    "without a terminal ssh cannot prompt for a password or code. Set `ControlMaster auto`, `ControlPath ~/.ssh/cm-%C` and `ControlPersist 8h` for the host in ~/.ssh/config, run `{command}` once and then this command again; or run this command in a terminal. Kerberos needs a `kinit`",
                    "没有终端时 ssh 无法提示输入密码或验证码。在 ~/.ssh/config 里为该主机设置 `ControlMaster auto`、`ControlPath ~/.ssh/cm-%C` 和 `ControlPersist 8h`，先执行一次 `{command}`，再执行本命令；或者在终端里执行本命令。Kerberos 需要 `kinit`",
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
        Text("the key cannot be used", "密钥无法使用"),
        why=NO_LOGIN,
        what=Text(
            "The file in `key:` is missing, unreadable, not a private key, or has a passphrase and is not in ssh-agent. `ssh-add FILE` adds it to the agent.",
            "`key:` 指定的文件不存在、不可读、不是私钥，或者带口令且未加入 ssh-agent。用 `ssh-add FILE` 把它加入 agent。",
        ),
        do=Text(
            "Correct the path in `key`; add a key with a passphrase to the agent with `ssh-add`",
            "修改 `key` 的路径；带口令的密钥先用 `ssh-add` 加入 agent",
        ),
        cases={
            "": Case(
                Text("the key {path} cannot be used: {problem}", "密钥 {path} 无法使用：{problem}"),
                Text("correct `key` under `ssh:` in the inventory", "修改 inventory 里 `ssh:` 下的 `key`"),
            ),
            "passphrase": Case(
                Text(
                    "the key {path} cannot be used: it has a passphrase and is not in ssh-agent",
                    "密钥 {path} 无法使用：它带口令，且未加入 ssh-agent",
                ),
                Text(
                    "run `{command}` to add it to ssh-agent; it prompts for the passphrase",
                    "执行 `{command}` 把它加入 ssh-agent；会提示输入口令",
                ),
            ),
            "public": Case(
                Text(
                    "the key {path} cannot be used: it is the public key; set the private key",
                    "密钥 {path} 无法使用：这是公钥；请指定私钥",
                ),
                Text(
                    "set `key: {private}` under `ssh:` in the inventory",
                    "在 inventory 的 `ssh:` 下设置 `key: {private}`",
                ),
            ),
            "mode": Case(
                Text("the key {path} cannot be used: {problem}", "密钥 {path} 无法使用：{problem}"),
                Text("make it readable only for you: {command}", "设为只有自己可读：{command}"),
            ),
        },
    ),
    "CC-SSH-009": Entry(
        "error",
        Text("unknown host key", "未知的主机密钥"),
        why=UNTRUSTED,
        what=Text(
            "Compare the fingerprint with the one that the node itself shows (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`), then connect once with ssh, or set `ssh: {host_keys: accept-new}`.",
            "请与节点本身显示的指纹核对（`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`），然后用 ssh 连接一次，或者设置 `ssh: {host_keys: accept-new}`。",
        ),
        do=Text(
            "Log in once with `ssh` and compare the fingerprint, or set `host_keys: accept-new`",
            "用 `ssh` 登录一次并核对指纹，或者设置 `host_keys: accept-new`",
        ),
        cases={
            "": Case(
                Text("{server}'s host key is not known on this machine", "本机没有 {server} 的主机密钥记录"),
                Text(
                    "compare it with `{command}`, run from a network that you trust; then connect once with ssh, or set `host_keys: accept-new` under `ssh:` in the inventory to record new keys automatically",
                    "在可信的网络里执行 `{command}` 并核对；然后用 ssh 连接一次，或者在 inventory 的 `ssh:` 下设置 `host_keys: accept-new`，自动记录新密钥",
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is not known", "{place} 的主机密钥未知"),
                Text(
                    "run `{command}` once and compare the fingerprint, or set `ssh: {host_keys: accept-new}`",
                    "执行一次 `{command}` 并核对指纹，或者设置 `ssh: {host_keys: accept-new}`",
                ),
            ),
        },
        texts=("Host key verification failed",),
    ),
    "CC-SSH-010": Entry(
        "error",
        Text("the host key has changed", "主机密钥已变化"),
        why=UNTRUSTED,
        what=Text(
            "The node was reinstalled, the address now belongs to another machine, or another machine intercepts the connection. Once you know the reason: `ssh-keygen -R HOST`, then connect again.",
            "节点重装过、该地址现在属于另一台机器，或者连接被其他机器拦截。查明原因之后执行 `ssh-keygen -R HOST`，再重新连接。",
        ),
        do=Text(
            "Run the `ssh-keygen -R` that is shown, but only if you know that the machine was reinstalled",
            "确认机器重装过，才执行提示的 `ssh-keygen -R`",
        ),
        cases={
            "": Case(
                Text(
                    "{server}'s host key is not the one in {location}",
                    "{server} 的主机密钥与 {location} 中的不同",
                ),
                Text(
                    "only if the node was reinstalled: {command}; otherwise another machine answers at this address",
                    "仅当节点确实重装过时执行：{command}；否则是其他机器在应答",
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} has changed", "{place} 的主机密钥与记录的不同"),
                Text(
                    "if the node was reinstalled, run `ssh-keygen -R {known}` and connect once with `{command}`; otherwise find out why the key changed",
                    "如果节点重装过，执行 `ssh-keygen -R {known}`，再用 `{command}` 连接一次；否则请查明密钥变化的原因",
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
            "known_hosts marks this key as `@revoked`: it must not be trusted, on any host.",
            "known_hosts 把该密钥标记为 `@revoked`：在任何主机上都不可信任。",
        ),
        do=Text(
            "Ask the person who maintains the list of revoked keys; never bypass it",
            "联系维护吊销列表的人，不要绕过",
        ),
        cases={
            "": Case(
                Text(
                    "{server}'s host key is revoked by {location}", "{server} 的主机密钥已被 {location} 吊销"
                ),
                Text(
                    "give the node a new host key; do not remove the line",
                    "给节点换新的主机密钥；不要删除那一行",
                ),
            ),
            "refused": Case(
                Text(
                    "{server}'s host key is rejected by RevokedHostKeys of the SSH configuration: {reason}",
                    "{server} 的主机密钥被 SSH 配置里的 RevokedHostKeys 拒绝：{reason}",
                ),
                Text(
                    "give it a new host key; if the file is missing, ask the person who maintains it",
                    "给它换新的主机密钥；如果文件不存在，联系维护该文件的人",
                ),
            ),
            "openssh": Case(
                Text("the host key of {place} is revoked", "{place} 的主机密钥已被吊销"),
                Text("do not connect; ask the administrator of the node", "不要连接；联系节点的管理员"),
            ),
        },
    ),
    "CC-SSH-012": Entry(
        "error",
        Text("the new host key cannot be recorded", "无法记录新的主机密钥"),
        why=UNTRUSTED,
        what=Text(
            "`accept-new` trusts a key on first connection and must record it; the known_hosts file cannot be written.",
            "`accept-new` 在首次连接时信任密钥并必须记录下来；但 known_hosts 文件不可写。",
        ),
        do=Text(
            "Make known_hosts writable, or set another file with `ssh: {known_hosts: FILE}`",
            "使 known_hosts 可写，或者用 `ssh: {known_hosts: FILE}` 指定另一个文件",
        ),
        cases={
            "": Case(
                Text(
                    "cannot record {server}'s new host key in {path}", "{server} 的新主机密钥无法写入 {path}"
                ),
                Text(
                    "make the file writable, or set another one as `known_hosts` under `ssh:` in the inventory",
                    "使该文件可写，或者在 inventory 的 `ssh:` 下用 `known_hosts` 指定另一个文件",
                ),
            ),
        },
    ),
    "CC-SSH-013": Entry(
        "error",
        Text("cannot open a connection to the node", "无法建立到节点的连接"),
        why=UNREACHED,
        what=Text(
            "`ssh: {proxy_command: ...}` must connect its standard input and output to the node's SSH port. Run it by hand: it should print a line that starts with SSH-2.0.",
            "`ssh: {proxy_command: ...}` 必须把标准输入输出连接到节点的 SSH 端口。手工执行时，应输出以 SSH-2.0 开头的一行。",
        ),
        do=Text(
            "Run the `proxy_command` by hand and read its error", "手工执行 `proxy_command`，查看它的报错"
        ),
        cases={
            "placeholder": Case(
                Text(
                    "`ssh.proxy_command` contains the unknown placeholder %{letter}",
                    "`ssh.proxy_command` 含有未知的占位符 %{letter}",
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
                    "check whether the node is up; then run the proxy command by hand, with %h and %p filled in: it must connect its stdin and stdout to the node's sshd",
                    "检查节点是否在线；然后填入 %h 和 %p 手工执行代理命令：它必须把 stdin 和 stdout 连接到节点的 sshd",
                ),
            ),
            "lab": Case(
                Text("the lab could not connect to the node", "lab 无法连接该节点"),
                Text(
                    "{heal}  # or `clusterctl lab status` to see what is broken",
                    "{heal}  # 或者用 `clusterctl lab status` 查看故障",
                ),
            ),
            "openssh": Case(
                Text("the connection to {place} through {via} ended", "经 {via} 到 {place} 的连接断开"),
                Text(
                    "check the output of `{command}`: a machine in between may be off, unknown on this machine or reject the login; or the node is off",
                    "查看 `{command}` 的输出：中间的机器可能未开机、在本机无法解析或拒绝登录；也可能是节点未开机",
                ),
            ),
        },
    ),
    "CC-SSH-014": Entry(
        "error",
        Text("the server refuses sessions", "服务端拒绝建立会话"),
        why=NO_LOGIN,
        what=Text(
            "Login works but running a command does not: too many sessions on the connection (MaxSessions), a forced command, or an account without a shell.",
            "可以登录，但无法执行命令：连接上的会话过多（MaxSessions）、强制命令，或者账号没有 shell。",
        ),
        do=Text(
            "The cause is a forced command, an account without a shell, or `MaxSessions`: ask the server's administrator",
            "原因是强制命令、账号没有 shell，或者 `MaxSessions` 的限制：请联系服务器管理员",
        ),
        cases={
            "": Case(
                Text("the SSH server refuses to run a command", "SSH 服务端拒绝执行命令"),
                Text(
                    "check MaxSessions, ForceCommand and the user's login shell on the node",
                    "检查节点上的 MaxSessions、ForceCommand 和该用户的登录 shell",
                ),
            ),
        },
    ),
    "CC-SSH-015": Entry(
        "error",
        Text("the connection ended", "连接断开"),
        why=UNREACHED,
        what=Text(
            "An open connection was closed by the other side or by the network.",
            "已建立的连接被对端或网络断开。",
        ),
        do=Text(
            "Try again; if it happens again, check the node: `uptime`, `dmesg`",
            "请重试；如果再次出现，检查节点：`uptime`、`dmesg`",
        ),
        cases={
            "": Case(
                Text("the connection ended", "连接断开"),
                Text(
                    "the node, its sshd or the network in between went away; programs on the node may still be running",
                    "节点、它的 sshd 或中间的网络断开；节点上的程序可能仍在运行",
                ),
            ),
        },
    ),
    "CC-SSH-016": Entry(
        "error",
        Text("the connection stopped responding", "连接无响应"),
        why=UNREACHED,
        what=Text(
            "No data arrived for longer than a healthy node ever needs: the network is gone, or the node is frozen.",
            "没有收到数据的时间超过了正常节点的最长间隔：网络中断，或者节点已冻结。",
        ),
        do=Text(
            "The network or the node hangs; the run continues, and `clusterctl attach` reconnects to it",
            "网络或节点卡住；任务仍在运行，之后用 `clusterctl attach` 重新连接",
        ),
        cases={
            "": Case(
                Text("no data received for {limit:g} s", "{limit:g} 秒没有收到任何数据"),
                Text(
                    "the node or the network in between stopped responding; programs on the node may still be running",
                    "节点或中间的网络没有响应；节点上的程序可能仍在运行",
                ),
            ),
        },
    ),
    "CC-SSH-017": Entry(
        "error",
        Text("the login shell did not run the command", "登录 shell 没有执行命令"),
        why=NO_LOGIN,
        what=Text(
            "The account's login shell exited or printed text instead of running `/bin/sh`. Look for `exit` or a program that never ends in its startup files (.bashrc, .profile, config.fish).",
            "该账号的登录 shell 没有执行 `/bin/sh`，而是退出或输出了内容。在启动文件（.bashrc、.profile、config.fish）里查找 `exit` 或不会结束的程序。",
        ),
        do=Text(
            "A startup file (`.bashrc`, `.cshrc`) starts another shell or a program that waits: let it return early without a terminal",
            "启动文件（`.bashrc`、`.cshrc`）启动了其他 shell 或会等待的程序：没有终端时让它提前返回",
        ),
        cases={
            "flood": Case(
                Text(
                    "the login shell prints without end before the interpreter starts",
                    "登录 shell 在解释器启动前不断输出",
                ),
                Text(
                    "the startup files of the login shell must print nothing unless it is interactive",
                    "登录 shell 的启动文件在非交互时不能输出任何内容",
                ),
            ),
            "stdin": Case(
                Text(
                    "the login shell's startup files read the input for the interpreter",
                    "登录 shell 的启动文件读走了发给解释器的内容",
                ),
                Text(
                    "the login shell's startup files (.bashrc, config.fish, .cshrc) must not read from stdin",
                    "登录 shell 的启动文件（.bashrc、config.fish、.cshrc）不能读取 stdin",
                ),
            ),
        },
    ),
    "CC-SSH-018": Entry(
        "error",
        Text("the bastion cannot be used", "跳板机无法使用"),
        why=UNREACHED,
        what=Text(
            "The nodes behind the bastion were not tried. The message shows the bastion, and the evidence starts with the code of the problem there: fix it as if the bastion were a node. Its user, port and key come from its own part of the SSH configuration, or from `jump: user@host:port`.",
            "没有尝试连接跳板机后面的节点。报错里有跳板机的名称，检查结果以跳板机上问题的错误码开头：按普通节点的方法解决即可。跳板机的用户、端口和密钥取自 SSH 配置中它自己的部分，或者 `jump: user@host:port`。",
        ),
        do=Text(
            "Fix the bastion first: the message shows its problem; test with `ssh BASTION`",
            "先解决跳板机的问题，报错里写明了原因；用 `ssh BASTION` 测试",
        ),
        cases={
            "ended": Case(
                Text("the connection to the bastion {bastion} ended", "到跳板机 {bastion} 的连接断开"),
                Text(
                    "the bastion, its sshd or the network to it went away: try again",
                    "跳板机、它的 sshd 或中间的网络断开：请重试",
                ),
            ),
            "openssh": Case(
                Text("the bastion {bastion} does not respond", "跳板机 {bastion} 没有响应"),
                Text(
                    "check the output of `{command}`; if it is the wrong bastion, correct `jump` or the ProxyJump of ~/.ssh/config",
                    "查看 `{command}` 的输出；如果跳板机写错了，修改 `jump` 或 ~/.ssh/config 里的 ProxyJump",
                ),
            ),
            "": Case(
                Text(
                    "the bastion {bastion} cannot be used: {problem}", "跳板机 {bastion} 无法使用：{problem}"
                ),
                same("{way_out}"),
            ),
            "inner": Case(same("{problem}"), same("{way_out}")),
        },
    ),
    "CC-SSH-019": Entry(
        "error",
        Text("the SSH configuration cannot be used", "SSH 配置无法使用"),
        why=UNREACHED,
        what=Text(
            "`ssh -G HOST` fails, gives an invalid host or user, or results in a loop of bastions. The evidence is the error of ssh. `ssh: {config: FILE}` reads another file, `config: none` reads none.",
            "`ssh -G HOST` 失败、给出无效的主机或用户，或者跳板机形成循环。显示的是 ssh 的报错。`ssh: {config: FILE}` 读取另一个文件，`config: none` 不读取任何文件。",
        ),
        do=Text(
            "Fix the line that ssh reports; `ssh: {config: none}` reads no configuration",
            "修改 ssh 指出的那一行；`ssh: {config: none}` 表示不读取配置",
        ),
        cases={
            "": Case(
                Text("ssh cannot read its configuration", "ssh 无法读取它的配置"),
                Text(
                    "make `{command}` work; or set `config: none` under `ssh:` in the inventory to read no configuration",
                    "使 `{command}` 能正常执行；或者在 inventory 的 `ssh:` 下设置 `config: none`，不读取 SSH 配置",
                ),
            ),
            "names": Case(
                Text("invalid host or user name in the SSH configuration", "SSH 配置里的主机名或用户名无效"),
                Text(
                    "correct it in ~/.ssh/config; hosts and users may contain only letters, digits and . _ -",
                    "在 ~/.ssh/config 里修改；主机名和用户名只能含字母、数字和 . _ -",
                ),
            ),
            "circle": Case(
                Text(
                    "the bastions to the node form a loop, or there are too many",
                    "到节点的跳板机形成循环，或者级数太多",
                ),
                Text(
                    "exclude the bastion itself from its rule, for example `Host *.cluster !bastion`; `ssh -G NAME` shows its ProxyJump",
                    "把跳板机自身从规则里排除，例如 `Host *.cluster !bastion`；`ssh -G NAME` 会显示它的 ProxyJump",
                ),
            ),
        },
    ),
    "CC-SSH-020": Entry(
        "error",
        Text("the bastion does not allow forwarding", "跳板机不允许转发"),
        why=UNREACHED,
        what=Text(
            "The login at the bastion works, but its sshd_config forbids connections to other machines (AllowTcpForwarding, PermitOpen, or `restrict` before the key in authorized_keys).",
            "可以登录跳板机，但它的 sshd_config 禁止转发连接（AllowTcpForwarding、PermitOpen，或者 authorized_keys 里密钥前的 `restrict`）。",
        ),
        do=Text(
            "Set `AllowTcpForwarding yes` on the bastion, with no `restrict` before the key; or use another `jump`",
            "在跳板机上设置 `AllowTcpForwarding yes`，密钥前不要写 `restrict`；或者换一个 `jump`",
        ),
        cases={
            "": Case(
                Text(
                    "the bastion {bastion} does not allow forwarding to {address}",
                    "跳板机 {bastion} 不允许转发到 {address}",
                ),
                Text(
                    "allow it with AllowTcpForwarding and PermitOpen in the bastion's sshd_config; if that is not possible, use `proxy_command`",
                    "在跳板机的 sshd_config 里用 AllowTcpForwarding 和 PermitOpen 允许转发；如果无法修改，使用 `proxy_command`",
                ),
            ),
        },
    ),
    "CC-SSH-021": Entry(
        "error",
        Text("the host certificate is not valid", "主机证书无效"),
        why=UNTRUSTED,
        what=Text(
            "A `@cert-authority` line of known_hosts trusts the authority that signed the certificate, but the certificate has expired, is for other names, or is not a host certificate. It must contain the host name that SSH uses: `host`, or the HostName or HostKeyAlias of your SSH configuration.",
            "known_hosts 的 `@cert-authority` 行信任签发该证书的机构，但证书已过期、用于其他名称，或者不是主机证书。证书必须包含 SSH 使用的主机名：`host`，或者 SSH 配置里的 HostName 或 HostKeyAlias。",
        ),
        do=Text(
            "Its names or its dates do not match: renew it, or correct `host:`",
            "证书的名称或有效期不符：重新签发，或者修改 `host:`",
        ),
        cases={
            "": Case(
                Text("{server}'s host certificate is not valid", "{server} 的主机证书无效"),
                Text(
                    "let the certificate authority sign its host key again, for the name in the inventory or its HostName (`ssh-keygen -s CA -h -n NAME -I ID`); or set HostKeyAlias in ~/.ssh/config",
                    "让证书颁发机构重新签发主机密钥，名称要与 inventory 或 HostName 中的一致（`ssh-keygen -s CA -h -n NAME -I ID`）；或者在 ~/.ssh/config 里设置 HostKeyAlias",
                ),
            ),
        },
    ),
    "CC-SSH-022": Entry(
        "warning",
        Text("the private key is readable by others", "其他用户可以读取私钥"),
        why=Text(
            "Anyone who can read it can log in as you; ssh ignores such a key.",
            "能读取它的人可以用你的身份登录；ssh 会忽略这样的密钥。",
        ),
        what=Text(
            "A private key file on this machine is readable by its group or by everybody. `ssh` ignores it (`WARNING: UNPROTECTED PRIVATE KEY FILE!`), so a login that works with clusterctl fails with ssh.",
            "本机上的私钥文件对组用户或所有用户可读。`ssh` 会忽略它（`WARNING: UNPROTECTED PRIVATE KEY FILE!`），因此 clusterctl 能登录而 ssh 不能。",
        ),
        do=Text("Run `chmod 600` on the key file, as shown", "按提示对密钥文件执行 `chmod 600`"),
        cases={
            "": Case(fix=same("chmod 600 {file}")),
        },
        texts=("UNPROTECTED PRIVATE KEY FILE!",),
    ),
    "CC-SSH-023": Entry(
        "info",
        Text("the login shell prints text", "登录 shell 会输出内容"),
        why=Text(
            "clusterctl skips this text, but rsync, scp and sftp break: `is your shell clean?`.",
            "clusterctl 会跳过这些内容，但 rsync、scp 和 sftp 会出错：`is your shell clean?`。",
        ),
        what=Text(
            "A startup file of the login shell (.bashrc, .cshrc, config.fish) writes to standard output without a terminal. rsync then prints `protocol version mismatch -- is your shell clean?`, sftp `Received message too long`. Print only in interactive shells: `case $- in *i*) echo hello;; esac`.",
            "登录 shell 的启动文件（.bashrc、.cshrc、config.fish）在没有终端时写标准输出。此时 rsync 报 `protocol version mismatch -- is your shell clean?`，sftp 报 `Received message too long`。请只在交互时输出：`case $- in *i*) echo hello;; esac`。",
        ),
        do=Text(
            "Let `.bashrc` print only in interactive shells: `case $- in *i*) ;; *) return;; esac` as its first line",
            "让 `.bashrc` 只在交互时输出：第一行写 `case $- in *i*) ;; *) return;; esac`",
        ),
        cases={
            "": Case(fix=same("{command}")),
        },
        texts=("is your shell clean?",),
    ),
    "CC-SSH-030": Entry(
        "error",
        Text("the ssh program cannot be used", "无法使用 ssh 程序"),
        why=UNREACHED,
        what=Text(
            "With `ssh: {transport: openssh}` the program `ssh` of this machine connects to the nodes. It is not installed, or rejects a line of ~/.ssh/config or a value under `ssh:`; its error is shown.",
            "设置 `ssh: {transport: openssh}` 后，由本机的 `ssh` 程序连接节点。它没有安装，或者不接受 ~/.ssh/config 的某一行或 `ssh:` 下的某个值；会列出它的报错。",
        ),
        do=Text(
            "Install the OpenSSH client, or remove `transport: openssh`",
            "安装 OpenSSH 客户端，或者去掉 `transport: openssh`",
        ),
        cases={
            "program": Case(
                Text("the program ssh cannot be run on this machine", "本机无法运行 ssh 程序"),
                Text(
                    "install the OpenSSH client, or remove `transport: openssh`",
                    "安装 OpenSSH 客户端，或者去掉 `transport: openssh`",
                ),
            ),
            "settings": Case(
                Text("ssh rejects its settings", "ssh 拒绝它的设置"),
                Text(
                    "correct ~/.ssh/config, or the settings under `ssh:` in the inventory",
                    "修改 ~/.ssh/config，或者 inventory 里 `ssh:` 下的设置",
                ),
            ),
        },
    ),
    "CC-SSH-031": Entry(
        "error",
        Text("the ssh program failed", "ssh 程序失败"),
        why=UNREACHED,
        what=Text(
            "With `ssh: {transport: openssh}` the program `ssh` of this machine exited before login, with an error that has no code of its own. Run the same ssh by hand with `-v`.",
            "设置 `ssh: {transport: openssh}` 后，本机的 `ssh` 程序在登录之前退出，且报错没有对应的错误码。请加 `-v` 手工执行同样的 ssh。",
        ),
        do=Text(
            "Run `ssh NODE true` by hand: it prints the reason", "手工执行 `ssh NODE true`，它会输出原因"
        ),
        cases={
            "": Case(
                Text("ssh to {place} ended with status {status}", "连接 {place} 的 ssh 以状态 {status} 结束"),
                CHECK_OUTPUT,
            ),
            "signal": Case(
                Text("ssh to {place} got signal {signal}", "连接 {place} 的 ssh 收到信号 {signal}"),
                CHECK_OUTPUT,
            ),
        },
    ),
    "CC-KEYS-001": Entry(
        "error",
        Text(
            "wrong password, or the server accepts no password for this account (common for root)",
            "密码错误，或者服务端不允许该账号用密码登录（root 往往如此）",
        ),
        do=Text(
            "Try the password with `ssh`; many servers accept only keys for root: use another user",
            "用 `ssh` 测试密码；很多服务端只允许 root 用密钥登录：请换一个用户",
        ),
        cases={
            "": Case(
                Text("{server} rejected this password for {user}", "{server} 不接受 {user} 的这个密码"),
                Text(
                    "check `user` under `ssh:` in the inventory: the password must be that user's; some servers accept none for root (PermitRootLogin)",
                    "检查 inventory 里 `ssh:` 下的 `user`：密码必须是该用户的；有些服务端不接受 root 的密码（PermitRootLogin）",
                ),
            ),
        },
    ),
    "CC-KEYS-002": Entry(
        "error",
        Text(
            "the server accepts no passwords; the node's administrator must install the key",
            "服务端不接受密码；须由节点的管理员安装密钥",
        ),
        do=Text("Give your public key to the node's administrator", "把公钥交给节点的管理员安装"),
        cases={
            "": Case(
                Text("{server} accepts no passwords", "{server} 不接受密码"),
                Text(
                    "give the public key to the node's administrator: it belongs in ~/.ssh/authorized_keys there",
                    "把公钥交给节点的管理员，写进节点的 ~/.ssh/authorized_keys",
                ),
            ),
        },
    ),
    "CC-KEYS-003": Entry(
        "error",
        Text(
            "the password was right, but the key could not be written: the home directory is read-only or full",
            "密码正确，但密钥无法写入：主目录只读或已满",
        ),
        do=Text(
            "Free space in the account's home directory on the node, or make it writable",
            "在节点上给主目录腾出空间，或者使其可写",
        ),
        cases={
            "shell": Case(
                Text(
                    "the node's shell did not accept the key: {reason}", "节点的 shell 没有接受密钥：{reason}"
                ),
                Text(
                    "log in to the node by ssh with the password, and check its shell",
                    "用 ssh 和密码登录节点，检查它的 shell",
                ),
            ),
            "": Case(
                Text("the key could not be installed: {detail}", "无法安装密钥：{detail}"),
                Text(
                    "the account needs write permission for its home directory, and must own ~/.ssh",
                    "该账号必须对主目录有写权限，~/.ssh 必须属于它自己",
                ),
            ),
        },
    ),
    "CC-KEYS-004": Entry(
        "error",
        Text(
            "the key is in authorized_keys, but the server does not accept it: others can write to the home directory, or sshd reads another file",
            "密钥已写入 authorized_keys，但服务端不接受：主目录可被其他用户写入，或者 sshd 读取另一个文件",
        ),
        do=Text(
            "Run `chmod go-w ~; chmod 700 ~/.ssh` on the node",
            "在节点上执行 `chmod go-w ~; chmod 700 ~/.ssh`",
        ),
        cases={
            "": Case(
                Text(
                    "the key is in {file}, but the node does not accept it", "密钥已写入 {file}，但节点不接受"
                ),
                Text(
                    "its sshd may read another file (AuthorizedKeysFile), or reject this kind of key (PubkeyAcceptedAlgorithms)",
                    "它的 sshd 可能读取其他文件（AuthorizedKeysFile），或者不接受这种密钥（PubkeyAcceptedAlgorithms）",
                ),
            ),
            "modes": Case(
                Text(
                    "the key is in {file}, but the node does not accept it", "密钥已写入 {file}，但节点不接受"
                ),
                Text(
                    "sshd ignores the file as long as others can write to the home directory; log in and run: chmod go-w ~",
                    "只要其他用户对主目录有写权限，sshd 就忽略该文件；登录后执行：chmod go-w ~",
                ),
            ),
        },
    ),
    "CC-KEYS-005": Entry(
        "error",
        Text(
            "your own ssh logs in to this node (`transport: openssh`): use ssh-copy-id",
            "该节点由你自己的 ssh 登录（`transport: openssh`）：请用 ssh-copy-id",
        ),
        do=Text("Run `ssh-copy-id NODE`", "执行 `ssh-copy-id NODE`"),
        cases={
            "": Case(
                Text(
                    "your own ssh logs in to this node (transport: openssh); init --keys does not support that",
                    "该节点由你自己的 ssh 登录（transport: openssh）；init --keys 不支持",
                ),
                same("{command}"),
            ),
        },
    ),
    "CC-KEYS-006": Entry(
        "error",
        Text("the inventory has several keys; push them one by one", "inventory 里有多把密钥；请逐个推送"),
        do=Text("Push them one by one with `--nodes`", "用 `--nodes` 逐个推送"),
        cases={
            "": Case(
                Text("the inventory has several keys: {names}", "inventory 里有多把密钥：{names}"),
                Text(
                    "push them one by one, with --key FILE and --nodes", "用 --key FILE 和 --nodes 逐个推送"
                ),
            ),
        },
    ),
    "CC-KEYS-007": Entry(
        "error",
        Text("no key exists, and its creation was not confirmed", "没有密钥，也没有确认生成"),
        do=Text("Run `ssh-keygen -t ed25519`", "执行 `ssh-keygen -t ed25519`"),
        cases={
            "": Case(
                Text("the key {path} does not exist", "密钥 {path} 不存在"),
                Text("add -y to create one, or run {command}", "加 -y 自动生成，或者执行 {command}"),
            ),
        },
    ),
    "CC-KEYS-008": Entry(
        "error",
        Text("the variable in `--password-from` is not set", "`--password-from` 指定的变量没有设置"),
        do=Text("Export the variable first", "先 export 这个变量"),
        cases={
            "": Case(
                Text("--password-from: {variable} is not set", "--password-from：变量 {variable} 没有设置"),
                same("read -rs {variable}; export {variable}"),
            ),
        },
    ),
    "CC-KEYS-009": Entry(
        "error",
        Text("the key cannot be created or read", "无法生成或读取密钥"),
        do=Text("Check path and permissions of the key file", "检查密钥文件的路径和权限"),
        cases={
            "": Case(
                Text("the key {path} cannot be used", "密钥 {path} 无法使用"),
                Text("create it by hand: {command}", "手工生成：{command}"),
            ),
        },
    ),
    "CC-KEYS-010": Entry(
        "error",
        Text(
            "a password is needed, and there is no terminal to prompt for it", "需要密码，但没有终端可以输入"
        ),
        do=Text(
            "Run it in a terminal, or use `--password-from NAME`",
            "在终端里执行，或者用 `--password-from NAME`",
        ),
        cases={
            "": Case(
                Text(
                    "the node needs a password, and there is no terminal to prompt for it",
                    "节点要求密码，但没有终端可以输入",
                ),
                Text(
                    "run it in a terminal, or put the password into a variable and set: --password-from VARIABLE",
                    "在终端里执行，或者把密码放进变量并指定：--password-from VARIABLE",
                ),
            ),
        },
    ),
    "CC-KEYS-011": Entry(
        "error",
        Text("no password was given for this node, so it was skipped", "没有输入该节点的密码，已跳过"),
        do=Text("Run the command again for this node", "对这个节点再执行一次"),
        cases={
            "": Case(
                Text("skipped: no password was given", "已跳过：没有输入密码"),
                Text("run the command again", "再执行一次"),
            ),
        },
    ),
}
