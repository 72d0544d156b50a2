"""The training network and collectives: CC-NET, CC-DEEP."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

SET_IP = Text("inventory, node {node}: ip: {ip}", "inventory，节点 {node}：ip: {ip}")
AT_START = Text("when a run starts", "任务启动时")

ENTRIES: Mapping[str, Entry] = {
    "CC-NET-001": Entry(
        "error",
        Text("a NIC does not exist", "网卡不存在"),
        why=Text(
            "Gloo and NCCL use this name and fail if no such interface exists.",
            "Gloo 和 NCCL 按这个名称选择网卡，网卡不存在就会失败。",
        ),
        what=Text(
            'The inventory\'s `nic:` names an interface that this node does not have. Names differ between machines and may change when a card moves to another slot. Gloo prints "Unable to find address for", NCCL "no socket interface found".',
            'inventory 的 `nic:` 指定的网卡在该节点上不存在。各机器的网卡名可能不同，网卡换插槽后也可能变化。Gloo 的报错是 "Unable to find address for"，NCCL 的报错是 "no socket interface found"。',
        ),
        do=Text(
            "Set `nic:` of that node as shown; the message lists its NICs",
            "按提示修改该节点的 `nic:`；报错里列出了它的网卡",
        ),
        cases={
            "": Case(fix=Text("inventory, node {node}: {line}", "inventory，节点 {node}：{line}")),
        },
    ),
    "CC-NET-002": Entry(
        "error",
        Text("a NIC is down", "网卡未启用"),
        why=Text("No packet can leave through it.", "数据包无法从该网卡发出。"),
        what=Text(
            "The interface is switched off, or has no carrier: no cable, no link at the switch, or an empty bond.",
            "网卡被关闭，或者没有链路：没接网线、交换机端口没有链路，或者 bond 没有成员。",
        ),
        do=Text(
            "Run `sudo ip link set NIC up`; check the cable and the switch",
            "执行 `sudo ip link set NIC up`；检查网线和交换机",
        ),
        cases={
            "cable": Case(fix=Text("check the cable and the switch port", "检查网线和交换机端口")),
            "": Case(fix=same("# ip link set {nic} up")),
        },
    ),
    "CC-NET-003": Entry(
        "error",
        Text("the training address is on another NIC", "训练地址在另一块网卡上"),
        why=Text(
            "The other nodes connect to the address, but NCCL and Gloo would listen on the NIC.",
            "其他节点连接这个地址，而 NCCL 和 Gloo 会监听另一块网卡。",
        ),
        what=Text(
            "`ip` and `nic` of this node contradict each other: the address belongs to a NIC that is not listed.",
            "该节点的 `ip` 和 `nic` 矛盾：地址属于一块没有列出的网卡。",
        ),
        do=Text(
            "Correct `nic:` or `ip:` so that the NIC has the address",
            "修改 `nic:` 或 `ip:`，使该网卡拥有该地址",
        ),
        cases={
            "": Case(
                fix=Text("inventory, node {node}: nic: [{nic}]", "inventory，节点 {node}：nic: [{nic}]")
            ),
        },
    ),
    "CC-NET-004": Entry(
        "error",
        Text("no NIC has the training address", "没有网卡拥有训练地址"),
        why=Text(
            "A node cannot listen on an address that it does not have, so other nodes cannot connect to it.",
            "节点无法监听自己没有的地址，其他节点也就无法连接。",
        ),
        what=Text(
            "The address at which the other nodes connect to this node is not one of its own. Often `host:` is a public address that a gateway translates. Then set the node's own address as `ip:`.",
            "其他节点用来连接该节点的地址不属于该节点。常见原因是 `host:` 写的是经网关转换的公网地址，此时请用 `ip:` 指定节点自己的地址。",
        ),
        do=Text(
            "Correct a typing error in `ip:`; if `host:` is a public address, set the node's own address as `ip:`",
            "改正 `ip:` 的拼写；如果 `host:` 是公网地址，用 `ip:` 指定节点自己的内网地址",
        ),
        cases={
            "": Case(fix=same("{lines}")),
        },
    ),
    "CC-NET-005": Entry(
        "error",
        Text("the node has no training address", "节点没有训练地址"),
        why=Text("The other nodes have no address to connect to.", "其他节点没有可连接的地址。"),
        what=Text(
            "None of `ip:`, `network:` and `host:` gives an address of this node. A `host:` from ~/.ssh/config, for example, does not resolve on the node itself. Set `ip:`.",
            "`ip:`、`network:` 和 `host:` 都得不到该节点的地址。例如 ~/.ssh/config 里的 `host:` 在节点上无法解析。请设置 `ip:`。",
        ),
        do=Text(
            "Set `ip:` for the node, or `network:` for all",
            "给该节点设置 `ip:`，或者给所有节点设置 `network:`",
        ),
        cases={
            "": Case(fix=SET_IP),
        },
    ),
    "CC-NET-006": Entry(
        "error",
        Text("no route to another node", "没有到另一个节点的路由"),
        why=Text(
            "The kernel has no route to that node's training address.", "内核没有到该节点训练地址的路由。"
        ),
        what=Text(
            "No entry of the node's routing table covers the other node's training address. Either the address is in a network that this node is not part of (a private network of another cluster), or a route or default gateway is missing.",
            "该节点的路由表中没有到另一个节点训练地址的条目。要么该地址所在的网络不包含该节点（例如另一个集群的内网），要么缺少路由或默认网关。",
        ),
        do=Text(
            "Check that the nodes are in one network: `ip route get ADDRESS` on the node",
            "检查各节点是否在同一网络：在节点上执行 `ip route get ADDRESS`",
        ),
        cases={
            "": Case(fix=same("$ ip route get {address}; ip route")),
        },
    ),
    "CC-NET-007": Entry(
        "error",
        Text("packets leave through another NIC", "数据包从另一块网卡发出"),
        why=Text(
            "The kernel's route to the other nodes does not use the chosen NIC: this is slow, and often hangs.",
            "内核到其他节点的路由不经过选定的网卡：速度变慢，而且常常卡住。",
        ),
        what=Text(
            "The training NIC and the kernel's route to the other nodes' training addresses do not match. NCCL and Gloo listen on the chosen NIC, while connections leave through the routed one. Use addresses of one network on all nodes (`network:` or `ip:`), or choose the NIC that the route uses.",
            "训练网卡与内核到其他节点训练地址的路由不一致。NCCL 和 Gloo 监听选定的网卡，而连接从路由指定的网卡发出。所有节点使用同一网络的地址（`network:` 或 `ip:`），或者选择路由所用的网卡。",
        ),
        do=Text(
            "Set `nic:` as shown, or give every node an `ip:` in one network",
            "按提示设置 `nic:`，或者给每个节点设置同一网络的 `ip:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: nic: [{nic}]  # or give every node an ip: in one network",
                    "inventory，节点 {node}：nic: [{nic}]  # 或者给每个节点设置同一网络的 ip:",
                )
            ),
        },
    ),
    "CC-NET-008": Entry(
        "error",
        Text("two nodes have the same training address", "两个节点的训练地址相同"),
        why=Text(
            "Both nodes use the same address: ranks connect to the wrong machine.",
            "两台机器使用同一个地址：rank 会连接到错误的机器。",
        ),
        what=Text(
            "Every node needs a different training address. Machines cloned from one image may share an address; the addresses of container bridges (172.17.0.1) are the same on every host. Choose the NIC with `nic:` or `network:`.",
            "每个节点的训练地址必须不同。从同一镜像克隆的机器可能地址相同；容器网桥的地址（172.17.0.1）在每台主机上都一样。用 `nic:` 或 `network:` 选择网卡。",
        ),
        do=Text("Set a different `ip:` for each of them", "给它们分别设置不同的 `ip:`"),
        cases={
            "lines": Case(fix=same("{lines}")),
            "": Case(
                fix=Text("inventory: set a different ip: for each of them", "inventory：分别设置不同的 ip:")
            ),
        },
    ),
    "CC-NET-009": Entry(
        "warning",
        Text("the MTUs differ", "MTU 不一致"),
        why=Text(
            "Small messages pass and large ones hang when one side sends frames that the other side drops.",
            "一端发送的帧被另一端丢弃时，小消息能通过，大消息会卡住。",
        ),
        what=Text(
            "The training NICs have different MTUs. TCP usually finds the smaller one; if ICMP is blocked, or with RoCE, large transfers hang.",
            "训练网卡的 MTU 不同。TCP 通常会使用较小的值；如果 ICMP 被屏蔽，或者使用 RoCE，大的传输会卡住。",
        ),
        do=Text("Set the same MTU on all nodes and the switch", "在所有节点和交换机上设置相同的 MTU"),
        cases={
            "": Case(fix=same("{commands}")),
        },
    ),
    "CC-NET-010": Entry(
        "info",
        Text("the hostname resolves to loopback", "主机名解析到回环地址"),
        why=Text(
            "Gloo alone would listen on loopback; clusterctl sets the NIC for Gloo, so its runs are not affected.",
            "Gloo 默认会监听回环地址；clusterctl 会为 Gloo 指定网卡，所以它启动的任务不受影响。",
        ),
        what=Text(
            "The node's own hostname resolves to 127.x.x.x, as Debian's installer writes it into /etc/hosts. Programs that look up their own address by hostname then get loopback: Gloo without GLOO_SOCKET_IFNAME, torchrun's c10d rendezvous without --local-addr. `clusterctl launch` sets both.",
            "节点自身的主机名解析到 127.x.x.x（Debian 安装程序会这样写 /etc/hosts）。按主机名查询本机地址的程序会得到回环地址：例如没有设置 GLOO_SOCKET_IFNAME 的 Gloo，没有 --local-addr 的 torchrun c10d rendezvous。`clusterctl launch` 会设置这两项。",
        ),
        do=Text(
            "Nothing to do for clusterctl; to start torchrun by hand, correct `/etc/hosts`",
            "使用 clusterctl 时无需处理；手工启动 torchrun 时，修改 `/etc/hosts`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "for programs started by hand, in /etc/hosts on {node}: {ip} {host}",
                    "手工启动程序时，在 {node} 的 /etc/hosts 里写：{ip} {host}",
                )
            ),
        },
    ),
    "CC-NET-011": Entry(
        "error",
        Text("the training address is loopback", "训练地址是回环地址"),
        why=Text(
            "Other machines cannot connect to an address in 127.0.0.0/8.",
            "其他机器无法连接 127.0.0.0/8 中的地址。",
        ),
        what=Text(
            "A loopback address works only between nodes on one machine.",
            "回环地址只能用于同一台机器上的节点之间。",
        ),
        do=Text(
            "Set `ip:` to an address that the other nodes can connect to", "把 `ip:` 设为其他节点能连接的地址"
        ),
        cases={
            "": Case(fix=SET_IP),
        },
    ),
    "CC-NET-012": Entry(
        "warning",
        Text("NIC speeds differ", "网卡速率不同"),
        why=Text(
            "The slowest link sets the speed of every all-reduce.", "最慢的链路决定每次 all-reduce 的速度。"
        ),
        what=Text(
            "The training NICs report different link speeds (Mbit/s). A bad cable or port makes a link fall back to a lower speed.",
            "训练网卡报告的链路速率（Mbit/s）不同。网线或端口有问题时，链路会降速。",
        ),
        do=Text(
            "Check cable, port and switch of the slow one; or choose a faster `nic:`",
            "检查较慢节点的网线、端口和交换机；或者选择更快的 `nic:`",
        ),
        cases={
            "": Case(fix=same("{command}")),
        },
    ),
    "CC-NET-013": Entry(
        "warning",
        Text("training would use a container or VPN network", "训练会使用容器或 VPN 的网络"),
        why=Text(
            "The NIC was chosen because it has the address, but it looks like the NIC of a container engine or VPN.",
            "选择这块网卡是因为它拥有该地址，但它看起来属于容器引擎或 VPN。",
        ),
        what=Text(
            "No NIC is set, and the one that has the training address is a bridge or tunnel. If that is intended, set it as `nic:`; otherwise set the address of the real network as `ip:`.",
            "没有指定网卡，而拥有训练地址的网卡是网桥或隧道。如果确实要用它，用 `nic:` 写明；否则用 `ip:` 指定真实网络的地址。",
        ),
        do=Text(
            "Set a physical NIC as `nic:`, or set `network:`; ignore this if it is intended",
            "用 `nic:` 指定物理网卡，或者设置 `network:`；如果确实要用它，可以忽略",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: nic: [{nic}]  # if it is intended",
                    "inventory，节点 {node}：nic: [{nic}]  # 如果确实要用它",
                )
            ),
        },
    ),
    "CC-NET-014": Entry(
        "warning",
        Text("a configuration file changes NCCL's settings", "有配置文件影响 NCCL"),
        why=Text(
            "NCCL reads this file without a message, on this node only.",
            "NCCL 会直接读取该文件而不给出提示，并且只影响该节点。",
        ),
        what=Text(
            "/etc/nccl.conf, ~/.nccl.conf or the file in NCCL_CONF_FILE sets NCCL variables. Environment variables override these files. Variables that only the file sets make this node differ from the others.",
            "/etc/nccl.conf、~/.nccl.conf 或 NCCL_CONF_FILE 指定的文件设置了 NCCL 变量。环境变量优先于这些文件。只在文件中设置的变量会使该节点与其他节点不同。",
        ),
        do=Text(
            "Check `/etc/nccl.conf` and `~/.nccl.conf` on that node: remove what is not intended, or make it the same on all nodes",
            "检查该节点的 `/etc/nccl.conf` 和 `~/.nccl.conf`：删除不需要的设置，或者使所有节点一致",
        ),
        cases={
            "": Case(
                fix=Text(
                    "put the settings that all nodes need into `env:` of the job; {command}",
                    "把所有节点需要的设置写进作业的 `env:`；{command}",
                )
            ),
        },
    ),
    "CC-NET-015": Entry(
        "warning",
        Text("the training address is not the NIC's first", "训练地址不是网卡的第一个地址"),
        why=Text(
            "Gloo and NCCL use the first address of the NIC, but the other nodes connect to this one.",
            "Gloo 和 NCCL 使用网卡的第一个地址，而其他节点连接的是训练地址。",
        ),
        what=Text(
            "The NIC has several IPv4 addresses and the training address is not the first of them. It works as long as all nodes can connect to the first addresses too.",
            "网卡有多个 IPv4 地址，训练地址不是第一个。只要所有节点也能连接第一个地址，就可以正常工作。",
        ),
        do=Text("Set `ip:` as shown", "按提示设置 `ip:`"),
        cases={
            "": Case(fix=SET_IP),
        },
    ),
    "CC-NET-016": Entry(
        "error",
        Text("a NIC has no IPv4 address", "网卡没有 IPv4 地址"),
        why=Text(
            "Gloo and NCCL find no address on it to listen on.", "Gloo 和 NCCL 在该网卡上找不到可监听的地址。"
        ),
        what=Text(
            "The NIC exists and is up but has no IPv4 address. The members of a bond or bridge have none: set the bond or bridge as `nic:`. Otherwise restore the NIC's address. Another NIC would put the training on another network, often the slower one of SSH.",
            "网卡存在且已启用，但没有 IPv4 地址。bond 或网桥的成员网卡没有地址：请把 `nic:` 设为 bond 或网桥。否则请恢复网卡的地址。换用其他网卡会使训练走另一个网络，往往是较慢的 SSH 网络。",
        ),
        do=Text(
            "Restore the NIC's address (`ip addr add`); for the member of a bond, set `nic:` as shown",
            "恢复网卡的地址（`ip addr add`）；如果是 bond 的成员网卡，按提示设置 `nic:`",
        ),
        cases={
            "restore": Case(fix=same("{command}")),
            "": Case(fix=Text("inventory, node {node}: {line}", "inventory，节点 {node}：{line}")),
        },
    ),
    "CC-NET-017": Entry(
        "warning",
        Text("the training address is public", "训练地址是公网地址"),
        why=Text(
            "PyTorch's own traffic is not authenticated or encrypted: anyone who can reach its ports can run code in the job.",
            "PyTorch 自身的通信既无身份认证也不加密：能访问其端口的人可以在作业中执行代码。",
        ),
        what=Text(
            "The whole internet can reach this address, unless a firewall blocks it. TCPStore, Gloo and NCCL accept every connection. Train over a private network, or let a firewall accept only the nodes' own addresses: on the rendezvous port of node 0 (see `ports:`) and on ephemeral ports (`ip_local_port_range`).",
            "除非有防火墙，整个互联网都能访问该地址。TCPStore、Gloo 和 NCCL 接受任何连接。请使用内网训练，或者让防火墙只放通节点自己的地址：包括 0 号节点的 rendezvous 端口（见 `ports:`）和临时端口（`ip_local_port_range`）。",
        ),
        do=Text(
            "Set a private address with `ip:` or `network:`, or use a firewall",
            "用 `ip:` 或 `network:` 指定内网地址，或者使用防火墙",
        ),
        cases={
            "private": Case(fix=SET_IP),
            "": Case(
                fix=Text(
                    "let a firewall accept only the nodes' own addresses", "让防火墙只放通节点自己的地址"
                )
            ),
        },
    ),
    "CC-NET-018": Entry(
        "warning",
        Text("training uses a virtual NIC", "训练使用虚拟网卡"),
        why=Text(
            "Tunnels and virtual links reduce bandwidth, and the node has a physical NIC with an address.",
            "隧道和虚拟链路会降低带宽，而节点有带地址的物理网卡。",
        ),
        what=Text(
            "The chosen NIC is a tunnel, a VPN or a virtual link (tun, wireguard, vxlan, veth, dummy), and the node also has a physical one. This is right if the tunnel is the only connection between the nodes; otherwise choose the physical NIC by its address or name.",
            "选定的网卡是隧道、VPN 或虚拟链路（tun、wireguard、vxlan、veth、dummy），而节点还有物理网卡。如果节点之间只能通过隧道连接，这样没有问题；否则请按地址或名称选择物理网卡。",
        ),
        do=Text(
            "Set the physical NIC as `nic:`, if the other nodes can connect to it",
            "如果其他节点能连接物理网卡，用 `nic:` 指定它",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: nic: [{nic}]  # if the other nodes can connect to it",
                    "inventory，节点 {node}：nic: [{nic}]  # 如果其他节点能连接它",
                )
            ),
        },
    ),
    "CC-NET-019": Entry(
        "warning",
        Text("a faster NIC is not used", "没有使用更快的网卡"),
        why=Text(
            "Gradients are sent through the chosen NIC; the faster one stays idle.",
            "梯度通过选定的网卡传输；更快的网卡闲置。",
        ),
        what=Text(
            "The node has a physical NIC, with a link and an address, that is faster than the chosen one. This is usual if SSH uses a slow management network and the inventory has only `host:`: set the fast network with `network:` or the NIC with `nic:`. NCCL on InfiniBand or RoCE ports is not affected: it finds those ports itself and uses the NIC only to set up connections.",
            "节点有一块物理网卡已连通且有地址，速率高于选定的网卡。常见于 SSH 走慢速管理网、inventory 只写了 `host:` 的情况：用 `network:` 指定高速网络，或者用 `nic:` 指定网卡。使用 InfiniBand 或 RoCE 的 NCCL 不受影响：它自动查找这些端口，该网卡只用于建立连接。",
        ),
        do=Text("Set `nic:` as shown", "按提示设置 `nic:`"),
        cases={
            "": Case(
                fix=Text("inventory, node {node}: nic: [{nic}]", "inventory，节点 {node}：nic: [{nic}]")
            ),
        },
    ),
    "CC-NET-020": Entry(
        "error",
        Text("no free port for the rendezvous", "没有可用于 rendezvous 的空闲端口"),
        what=Text(
            "Node 0 found no free port in the inventory's `ports`, or none outside the kernel's ephemeral range. The message shows the range that was searched.",
            "0 号节点在 inventory 的 `ports` 中，或者在内核临时端口范围之外，没有找到空闲端口。报错中写明了查找的范围。",
        ),
        do=Text(
            "Set a wider `ports:` in the inventory, or find the processes that use them: `ss -ltnp` on node 0",
            "在 inventory 里放宽 `ports:`，或者在 0 号节点上用 `ss -ltnp` 查看占用端口的进程",
        ),
        when=AT_START,
        cases={
            "reported": Case(
                same("{message}"),
                Text(
                    "set a wider `ports:` in the inventory; `ss -ltnp` on the node shows which process uses them",
                    "在 inventory 里放宽 `ports:`；在节点上用 `ss -ltnp` 查看占用端口的进程",
                ),
            ),
        },
    ),
    "CC-NET-021": Entry(
        "error",
        Text("node 0 cannot listen for the other nodes", "0 号节点无法监听其他节点的连接"),
        what=Text(
            "The agents of a run connect to the agent of node 0 at its training address. That agent could not listen there; the message shows the reason. Check that the address (`ip:`, or that of the NIC) belongs to node 0, that with `ports:` a second port is free besides the one for the rendezvous, and that the account may open enough files: the hub of a run needs one for each node, raises its own soft limit, and cannot raise the hard limit (`nofile` in limits.conf).",
            "任务的各个 agent 连接到 0 号节点训练地址上的 agent，而后者无法在该地址监听；报错中写明了原因。请检查：该地址（`ip:` 或网卡的地址）是否属于 0 号节点；设置了 `ports:` 时，除 rendezvous 端口外是否还有一个空闲端口；账号可打开的文件数是否足够：0 号节点的 hub 为每个节点打开一个文件，会自动提高软限制，但无法提高硬限制（limits.conf 的 `nofile`）。",
        ),
        do=Text(
            "Check that `ip:` or `nic:` belongs to node 0, and that with `ports:` a second port is free",
            "检查 `ip:` 或 `nic:` 是否属于 0 号节点；设置了 `ports:` 时，检查是否有第二个空闲端口",
        ),
        when=AT_START,
        cases={
            "reported": Case(
                same("{message}"),
                Text(
                    "in the inventory, `ip:` or `nic:` of node 0 must be its own, and two of `ports:` must be free; if the reason is the number of open files, raise `nofile` on the node",
                    "inventory 里 0 号节点的 `ip:` 或 `nic:` 必须属于它自己，`ports:` 里要有两个空闲端口；如果原因是打开的文件数，提高节点上的 `nofile`",
                ),
            ),
        },
    ),
    "CC-NET-022": Entry(
        "error",
        Text("a node cannot connect to the agent of node 0", "有节点无法连接 0 号节点的 agent"),
        what=Text(
            'Nothing was started. The node connects from its own training address to that of node 0; the evidence is the error of its system. "Connection refused" or no response: a firewall, a wrong address or a wrong route; `clusterctl check` shows NICs and routes. Training needs open ports between the nodes anyway; if only some are open, list them as `ports:` in the inventory. If the other side rejects the token of the run, another program listens on that port.',
            '没有启动任何程序。该节点从自己的训练地址连接 0 号节点的训练地址；报错是该节点系统返回的错误。"Connection refused" 或没有响应：防火墙、地址错误或路由错误；`clusterctl check` 会列出网卡和路由。训练本身就需要节点之间的端口互通；如果只放通了一部分，请用 `ports:` 写进 inventory。如果对端不接受该任务的 token，则该端口上是其他程序。',
        ),
        do=Text(
            "`clusterctl check` tests every connection; open the ports between the nodes, or list the open ones as `ports:`",
            "`clusterctl check` 会测试每个连接；放通节点之间的端口，或者用 `ports:` 写明已放通的端口",
        ),
        when=AT_START,
        cases={
            "": Case(
                Text(
                    "cannot connect to the agent of node 0 over the training network, port {port}",
                    "无法通过训练网络连接 0 号节点的 agent，端口 {port}",
                ),
                Text(
                    "allow connections from the nodes to node 0 on every port of the training network, or list open ports as `ports:`",
                    "允许各节点通过训练网络访问 0 号节点的所有端口，或者用 `ports:` 写明已放通的端口",
                ),
            ),
        },
    ),
    "CC-NET-023": Entry(
        "warning",
        Text("an InfiniBand port has a link but is not active", "InfiniBand 端口有链路但未激活"),
        why=Text(
            "NCCL does not use it, and falls back to fewer ports or to plain TCP.",
            "NCCL 不使用该端口，会改用较少的端口或普通 TCP。",
        ),
        what=Text(
            "The cable is connected and the link is up, but the port stays in INIT or ARMED. No subnet manager responds on this InfiniBand fabric, or it does not manage the port. Ports without a cable are not reported, only counted.",
            "线缆已连接、链路已建立，但端口停留在 INIT 或 ARMED 状态。该 InfiniBand 网络上没有子网管理器响应，或者子网管理器没有管理该端口。没有线缆的端口只计数，不报告。",
        ),
        do=Text(
            "Check cable, switch port and subnet manager: `ibstat`, `sminfo`",
            "检查线缆、交换机端口、子网管理器：`ibstat`、`sminfo`",
        ),
        cases={
            "": Case(fix=same("# ibstat; sminfo")),
        },
    ),
    "CC-NET-024": Entry(
        "warning",
        Text(
            "the nodes have different numbers of active InfiniBand ports",
            "各节点已激活的 InfiniBand 端口数不同",
        ),
        why=Text(
            "NCCL may refuse (`Detected mixed local Net device counts across ranks`) or use the smaller number.",
            "NCCL 可能报错（`Detected mixed local Net device counts across ranks`），或者使用较少的数量。",
        ),
        what=Text(
            "Some nodes have more active InfiniBand or RoCE ports than others: a cable is unplugged, or an adapter or its driver is missing.",
            "有的节点激活的 InfiniBand 或 RoCE 端口比其他节点多：线缆未接，或者缺少网卡或其驱动。",
        ),
        do=Text(
            "Bring the missing ports up, or select the same number with `NCCL_IB_HCA`",
            "启用缺少的端口，或者用 `NCCL_IB_HCA` 选择相同的数量",
        ),
        cases={
            "": Case(fix=same("$ grep . /sys/class/infiniband/*/ports/*/state")),
        },
        texts=("Detected mixed local Net device counts across ranks",),
    ),
    "CC-NET-025": Entry(
        "error",
        Text("InfiniBand and RoCE are mixed", "混用了 InfiniBand 和 RoCE"),
        why=Text(
            "InfiniBand and Ethernet ports cannot communicate with each other: `Attempted to connect incompatible devices`.",
            "InfiniBand 端口和以太网端口不能互通：`Attempted to connect incompatible devices`。",
        ),
        what=Text(
            "The active ports are InfiniBand on some nodes and Ethernet (RoCE) on others, and no kind is present on all nodes. Nodes that have both work as long as NCCL_IB_HCA selects ports of one kind; `check` lists the ports.",
            "有的节点激活的是 InfiniBand 端口，有的是以太网（RoCE）端口，没有一种是所有节点共有的。节点同时有两种端口时，只要 NCCL_IB_HCA 只选择其中一种即可；`check` 会列出端口。",
        ),
        do=Text(
            "Select ports of one kind with `NCCL_IB_HCA`, or set `NCCL_IB_DISABLE: 1`",
            "用 `NCCL_IB_HCA` 只选择一种端口，或者设置 `NCCL_IB_DISABLE: 1`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "job: env: {NCCL_IB_DISABLE: 1}  # plain TCP, as a workaround",
                    "job: env: {NCCL_IB_DISABLE: 1}  # 临时改用普通 TCP",
                )
            ),
        },
        texts=("Attempted to connect incompatible devices",),
    ),
    "CC-NET-026": Entry(
        "warning",
        Text("InfiniBand port rates differ", "InfiniBand 端口速率不同"),
        why=Text(
            "The slowest port sets the speed of every all-reduce.", "最慢的端口决定每次 all-reduce 的速度。"
        ),
        what=Text(
            "The slowest active port of some nodes has a lower rate than that of the others: a cable or a switch port made it fall back (`ibstatus` shows the same number).",
            "有的节点最慢的激活端口速率低于其他节点：线缆或交换机端口的问题使其降速（`ibstatus` 显示相同的数值）。",
        ),
        do=Text("Check cable and switch port of the slow one", "检查较慢节点的线缆和交换机端口"),
        cases={
            "": Case(fix=Text("check cable and switch port; {command}", "检查线缆和交换机端口；{command}")),
        },
    ),
    "CC-NET-027": Entry(
        "info",
        Text(
            "network adapters cannot access GPU memory directly",
            "网卡不能直接访问显存（没有 GPUDirect RDMA）",
        ),
        why=Text(
            "Every byte is copied through the node's memory first: slower, but with no error.",
            "每个字节都要先复制到节点内存：速度变慢，但不报错。",
        ),
        what=Text(
            "The node has NVIDIA GPUs and active InfiniBand or RoCE ports, but GPUDirect RDMA is not available: the module nvidia_peermem is not loaded, and the kernel driver is not the open one, which needs no module (DMA-BUF).",
            "节点有 NVIDIA GPU 和已激活的 InfiniBand 或 RoCE 端口，但 GPUDirect RDMA 不可用：没有加载 nvidia_peermem 模块，内核驱动也不是开源版（开源版使用 DMA-BUF，不需要该模块）。",
        ),
        do=Text("Run `sudo modprobe nvidia-peermem`", "执行 `sudo modprobe nvidia-peermem`"),
        cases={
            "": Case(fix=same("# modprobe nvidia-peermem")),
        },
    ),
    "CC-NET-028": Entry(
        "info",
        Text("NCCL_IB_GID_INDEX is set", "设置了 NCCL_IB_GID_INDEX"),
        why=Text(
            "NCCL 2.21 and later find the right address themselves; the right index may differ between nodes.",
            "NCCL 2.21 及更高版本会自动选择正确的地址；正确的编号在各节点上可能不同。",
        ),
        what=Text(
            "A fixed GID index selects an address of the RoCE port by its position in a table, which differs between nodes and changes with the addresses. A wrong index ends in `ibv_modify_qp failed with error Invalid argument`.",
            "固定的 GID 编号按表中的位置选择 RoCE 端口的地址，而该表在各节点上不同，并随地址变化。编号错误时的报错是 `ibv_modify_qp failed with error Invalid argument`。",
        ),
        do=Text("Remove `NCCL_IB_GID_INDEX` from `env`", "从 `env` 里删除 `NCCL_IB_GID_INDEX`"),
        cases={
            "": Case(fix=Text("remove {variable} from {source}", "从 {source} 里删除 {variable}")),
        },
    ),
    "CC-NET-029": Entry(
        "error",
        Text("the job uses NICs that a node does not have", "作业指定的网卡在某个节点上不存在"),
        why=Text(
            "A variable in the job's env overrides the one that launch sets, and is the same on every node.",
            "作业 env 里的变量优先于 launch 设置的值，并且在每个节点上都相同。",
        ),
        what=Text(
            "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME in the job's `env:` matches no NIC of the node. Gloo and TensorPipe take exact names, separated by commas, and all of them must exist: `=eth0`, `^docker0` and `eth` are NCCL's syntax, in which a bare name is a prefix, `=` means an exact name and `^` excludes names. Remove the variable: `launch` sets each of them for each node in the right syntax.",
            "作业 `env:` 里的 NCCL_SOCKET_IFNAME、GLOO_SOCKET_IFNAME 或 TP_SOCKET_IFNAME 与该节点的网卡都不匹配。Gloo 和 TensorPipe 需要准确的名称，用逗号分隔，且必须全部存在：`=eth0`、`^docker0` 和 `eth` 是 NCCL 的语法，其中单独的名称是前缀，`=` 表示完全匹配，`^` 表示排除。请删除该变量：`launch` 会在每个节点上按正确的语法设置。",
        ),
        do=Text(
            "Remove the variable from `env:`; `launch` sets the right one on each node",
            "从 `env:` 里删除该变量；`launch` 会在每个节点上正确设置",
        ),
        cases={
            "": Case(fix=Text("job: remove {variable} from env:", "job：从 env: 里删除 {variable}")),
        },
    ),
    "CC-NET-030": Entry(
        "error",
        Text("two nodes cannot connect to each other", "两个节点之间无法连接"),
        why=Text(
            "Gloo and NCCL connect all nodes, on ephemeral ports: a run would hang at its start.",
            "Gloo 和 NCCL 用临时端口连接所有节点：任务会在启动时卡住。",
        ),
        what=Text(
            "The nodes listened on ephemeral ports of their training addresses and connected to each other; some connections failed. If only one direction fails, a firewall blocks it, most likely on the target node. Gloo and NCCL listen on ephemeral ports (`ip_local_port_range`), so all of these must be open between the nodes, not only the master's. If a node has no working connection in either direction, it is in another network or VLAN, or its link is down.",
            "各节点在训练地址的临时端口上监听并互相连接，其中部分连接失败。如果只有一个方向失败，说明有防火墙阻断，多半在目标节点上。Gloo 和 NCCL 监听临时端口（`ip_local_port_range`），所以节点之间必须放通全部这些端口，而不只是主节点的端口。如果某个节点两个方向都不通，说明它在另一个网络或 VLAN，或者链路已断开。",
        ),
        do=Text(
            "Open TCP ports 32768-60999 between the nodes; the evidence shows on which node",
            "在节点之间放通 TCP 端口 32768-60999；检查结果指出了是哪个节点",
        ),
        cases={
            "duplicate": Case(fix=same("{command}")),
            "firewall": Case(
                fix=Text(
                    "{command}  # open TCP ports {ports} for connections from {callers}",
                    "{command}  # 放通来自 {callers} 的 TCP 端口 {ports}",
                )
            ),
        },
    ),
    "CC-NET-031": Entry(
        "error",
        Text("large packets are lost", "大数据包丢失"),
        why=Text(
            "Small messages pass, so the run starts; the first large transfer hangs until a timeout.",
            "小消息能通过，任务可以启动；第一次大的传输会卡住直到超时。",
        ),
        what=Text(
            'Two nodes connect, but 256 KiB of data does not arrive: an MTU black hole. One NIC, switch or tunnel on the path carries only smaller packets than the ends send, and the ICMP message for that ("fragmentation needed") is blocked or never sent. Set the MTU of all NICs of the training network to what the whole path carries.',
            '两个节点能建立连接，但 256 KiB 的数据无法到达，即 MTU 黑洞。路径上某块网卡、交换机或隧道支持的数据包小于两端发送的数据包，而相应的 ICMP 消息（"fragmentation needed"）被屏蔽或没有发出。请把训练网络所有网卡的 MTU 设为整条路径都支持的值。',
        ),
        do=Text(
            "Set the same MTU on NICs and switch; to test: `sudo ip link set NIC mtu 1500`",
            "网卡和交换机设置相同的 MTU；测试时可用 `sudo ip link set NIC mtu 1500`",
        ),
        cases={
            "": Case(fix=same("{commands}")),
        },
    ),
    "CC-NET-032": Entry(
        "warning",
        Text("a connection between nodes is slow", "节点之间的某个连接很慢"),
        why=Text(
            "Every all-reduce waits for the slowest connection.", "每次 all-reduce 都要等待最慢的连接。"
        ),
        what=Text(
            "A connection takes more than ten times as long as the others: its fastest round trip is above 5 ms, or its 256 KiB each way take more than 2 s. Typical causes: nodes in different buildings, a link that fell back to a low speed, a path through a tunnel or a busy router.",
            "某个连接的耗时超过其他连接的十倍：最快的往返时间超过 5 ms，或者双向各传 256 KiB 超过 2 秒。常见原因：节点在不同的机房、链路降速、路径经过隧道或繁忙的路由器。",
        ),
        do=Text(
            "Check cable, port and load of the reported node; or choose another `nic:`",
            "检查报告的节点的网线、端口和负载；或者换一个 `nic:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "check NIC, cable, switch port and other traffic on them, or {exclude}",
                    "检查网卡、网线、交换机端口及其他流量，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-NET-033": Entry(
        "error",
        Text("the master's port is closed", "主节点的端口未放通"),
        why=Text(
            "torchrun on the other nodes tries this port of node 0 until it times out.",
            "其他节点上的 torchrun 会一直尝试连接 0 号节点的这个端口，直到超时。",
        ),
        what=Text(
            "Node 0 listened on a port that was chosen like torchrun's port, and a node that can connect to its other ports could not connect to this one. Without `ports:`, `launch` uses a port outside the kernel's ephemeral range (20000 and above); set a range that your firewall accepts, such as `ports: 20000-20100`.",
            "0 号节点在一个按 torchrun 端口的规则选出的端口上监听，而能连接其他端口的节点无法连接该端口。没有设置 `ports:` 时，`launch` 使用内核临时端口范围之外的端口（20000 及以上）；请设置防火墙已放通的范围，例如 `ports: 20000-20100`。",
        ),
        do=Text(
            "Open it, or set `ports:` to a range that the firewall accepts",
            "放通该端口，或者把 `ports:` 设为防火墙已放通的范围",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory: ports: FIRST-LAST  # a range that the firewall accepts",
                    "inventory：ports: FIRST-LAST  # 防火墙已放通的范围",
                )
            ),
        },
    ),
    "CC-NET-034": Entry(
        "info",
        Text("packets are smaller than the NICs allow", "数据包小于网卡允许的大小"),
        why=Text(
            "A device between the nodes has a lower MTU; it works, with more packets than needed.",
            "节点之间有设备的 MTU 较小；可以工作，但数据包更多。",
        ),
        what=Text(
            "The segment size that TCP negotiated is smaller than the MTU of both NICs allows: a router, tunnel or switch between the nodes has a lower MTU. RDMA over this path may fail.",
            "TCP 协商的分段大小小于两端网卡 MTU 所允许的值：节点之间的路由器、隧道或交换机 MTU 较小。在该路径上 RDMA 可能失败。",
        ),
        do=Text(
            "It works; for full speed set the same large MTU on the whole path",
            "可以工作；如需全速，整条路径设置相同的大 MTU",
        ),
        cases={
            "": Case(
                fix=Text(
                    "set the MTU of the switches and tunnels between them to that of the NICs, or ignore it: only speed is affected",
                    "把节点之间的交换机和隧道的 MTU 设为网卡的 MTU；也可以忽略，只影响速度",
                )
            ),
        },
    ),
    "CC-NET-035": Entry(
        "warning",
        Text("a node took no part in the network test", "有节点没有参加连通性实测"),
        why=Text(
            "It is unknown whether the other nodes can connect to it.", "无法确定其他节点能否连接该节点。"
        ),
        what=Text(
            "The node answered the other checks, but then did not listen on its training address or did not report its connections in time. It may be overloaded, or a program on it blocks listening. If all `ports:` of the inventory are in use on node 0 it is an error: a launch would end with CC-NET-020.",
            "该节点完成了其他检查，但没有在训练地址上监听，或者没有按时报告连接结果。可能负载过高，或者节点上有程序阻止监听。如果 0 号节点上 inventory 的 `ports:` 全部被占用，则为错误：启动会以 CC-NET-020 结束。",
        ),
        do=Text(
            "The message shows the reason; run `clusterctl check` again",
            "报错里写明了原因；再执行一次 `clusterctl check`",
        ),
        cases={
            "ports": Case(
                fix=Text(
                    "inventory: ports: FIRST-LAST  # a wider range; processes that use them: {command}",
                    "inventory：ports: FIRST-LAST  # 更宽的范围；查看占用端口的进程：{command}",
                )
            ),
            "": Case(fix=same("$ uptime; ss -tlnp")),
        },
    ),
    "CC-NET-036": Entry(
        "error",
        Text("another machine answers at a training address", "训练地址上有其他机器应答"),
        why=Text(
            "Packets for this node go to another machine: ranks would wait until a timeout.",
            "发给该节点的数据包到达了另一台机器：rank 会一直等到超时。",
        ),
        what=Text(
            "A connection to a node's training address and port was answered without the secret of this check. Two machines have the same address, a stale ARP entry or a NAT sends packets elsewhere, or a proxy is in between.",
            "连接某个节点的训练地址和端口时，应答方不知道本次检查的密钥。可能两台机器地址相同、ARP 条目过期或 NAT 把数据包发到了别处，或者中间有代理。",
        ),
        do=Text(
            "Two machines have this address: `sudo arping -D` finds the other",
            "两台机器使用同一个地址：用 `sudo arping -D` 查找另一台",
        ),
        cases={
            "": Case(fix=same("{command}")),
        },
    ),
    "CC-NET-037": Entry(
        "warning",
        Text("addresses are translated between the nodes (NAT)", "节点之间有地址转换（NAT）"),
        why=Text(
            "The addresses that nodes announce differ from those that other nodes see: NCCL and Gloo may fail.",
            "节点通告的地址与其他节点看到的地址不同：NCCL 和 Gloo 可能失败。",
        ),
        what=Text(
            "A node connected from its training address, and the other node saw another address: a NAT is between the nodes. This happens in containers with a bridge network: run them with the host network (`--network host`).",
            "节点从训练地址发起连接，而对端看到的是另一个地址：节点之间有 NAT。使用桥接网络的容器会出现这种情况：请让容器使用主机网络（`--network host`）。",
        ),
        do=Text(
            "Set `ip:` to addresses that work between the nodes without NAT; containers need `--network host`",
            "把 `ip:` 设为节点之间不经 NAT 就能互通的地址；容器用 `--network host`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "use addresses that no NAT changes: `network:` or `nic:`; containers: --network host",
                    "使用不经 NAT 转换的地址：`network:` 或 `nic:`；容器用 --network host",
                )
            ),
        },
    ),
    "CC-NET-038": Entry(
        "error",
        Text("too few ports for Ray in `ports:`", "`ports:` 中的端口不够 Ray 使用"),
        why=Text(
            "Ray takes a port for each of its processes and each worker.",
            "Ray 的每个进程和每个 worker 各占用一个端口。",
        ),
        what=Text(
            "With `launcher: ray` all ports of Ray come from the node's `ports:`: ten for Ray's own processes, one for each CPU, on which Ray starts a worker, and more if the job has many actors. Each run takes a block of its own, so two runs at once need two. Without `ports:` they come from those outside the kernel's ephemeral range.",
            "使用 `launcher: ray` 时，Ray 的所有端口都取自该节点的 `ports:`：Ray 自身的进程需要十个，每个 CPU 一个（Ray 为每个 CPU 启动一个 worker），actor 多的作业还需要更多。每个任务占用各自的一段端口，因此两个任务同时运行需要两段。没有 `ports:` 时，取自内核临时端口范围之外的端口。",
        ),
        do=Text(
            "Set a wider `ports:` in the inventory, or remove it", "在 inventory 里放宽 `ports:`，或者删除它"
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: ports: {first}-{last}, or more",
                    "inventory，节点 {node}：ports: {first}-{last}，或更大的范围",
                )
            ),
        },
    ),
    "CC-DEEP-001": Entry(
        "error",
        Text("the collective fails with one node", "集合通信在某个节点上失败"),
        why=Text(
            "A real all_reduce failed whenever this node took part, so training would fail or hang there too.",
            "只要该节点参与，实际的 all_reduce 就失败，训练也会在该节点失败或卡住。",
        ),
        what=Text(
            "An all_reduce of all nodes failed; each node was then tested alone, and in pairs with others. A node that fails alone has a broken GPU, driver or NCCL. A node that fails with every partner has a broken NIC, cable or firewall. The other nodes were also tested without it; leave it out with `--exclude` until it is fixed.",
            "所有节点一起执行的 all_reduce 失败，随后对每个节点单独测试，并与其他节点两两测试。单独测试失败的节点是 GPU、驱动或 NCCL 有问题；与每个节点配对都失败的节点是网卡、线缆或防火墙有问题。同时也测试了排除它之后其余节点能否工作；修复之前请用 `--exclude` 排除它。",
        ),
        do=Text(
            "Leave it out with `--exclude`; check GPU, driver, NCCL and NIC of that node",
            "用 `--exclude` 排除它；检查该节点的 GPU、驱动、NCCL 和网卡",
        ),
        cases={
            "": Case(fix=Text("add --exclude {node}", "加 --exclude {node}")),
        },
    ),
    "CC-DEEP-002": Entry(
        "error",
        Text("the collective fails between two nodes", "两个节点之间的集合通信失败"),
        why=Text(
            "Each of them works with other nodes but not with the other one: the fault is between these two.",
            "两个节点分别与其他节点通信正常，彼此之间却失败：问题在这两个节点之间。",
        ),
        what=Text(
            "An all_reduce of all nodes failed, and one of only these two fails as well, while each of them works with other nodes. The cause is a firewall rule, a route, a switch port or a smaller MTU between these two. With only two nodes it cannot be determined which one is the cause.",
            "所有节点一起执行的 all_reduce 失败，只有这两个节点时也失败，而它们分别与其他节点通信正常。原因是两者之间的防火墙规则、路由、交换机端口，或者较小的 MTU。只有两个节点时，无法判断是哪一个的问题。",
        ),
        do=Text(
            "Check firewall, route, switch port and MTU between these two",
            "检查这两个节点之间的防火墙、路由、交换机端口和 MTU",
        ),
        cases={
            "": Case(fix=Text("add --exclude {last}", "加 --exclude {last}")),
        },
    ),
    "CC-DEEP-003": Entry(
        "error",
        Text("the collective fails, on no particular node", "集合通信失败，无法定位到节点"),
        why=Text(
            "A real all_reduce of all nodes failed, and no single node or link was found to be the cause.",
            "所有节点一起执行的 all_reduce 失败，没有找到是哪个节点或哪条链路的原因。",
        ),
        what=Text(
            "An all_reduce of all nodes failed, although smaller groups work, or no group works. If every pair works, check what grows with the number of nodes: open files, ports, timeouts. If no pair works, the cause is the same on all nodes: a firewall, the wrong NIC, a broken NCCL.",
            "所有节点一起执行的 all_reduce 失败，而较小的分组正常，或者所有分组都失败。如果两两都正常，检查随节点数增长的项目：打开的文件数、端口、超时。如果两两都失败，原因在所有节点上相同：防火墙、选错网卡、NCCL 损坏。",
        ),
        do=Text(
            "If every pair works: check limits that grow with the number of nodes. If none does: check NIC, NCCL and firewall on all nodes",
            "两两都正常：检查随节点数增长的限制。两两都失败：检查所有节点的网卡、NCCL 和防火墙",
        ),
        cases={
            "": Case(
                fix=Text(
                    "check what grows with the number of nodes: `ulimit -n`, ports, the backend's timeout",
                    "检查随节点数增长的项目：`ulimit -n`、端口、后端的超时",
                )
            ),
            "no-pair": Case(
                fix=Text(
                    "check that GPUs, NIC and firewall are as expected on all nodes: clusterctl check -v",
                    "检查所有节点的 GPU、网卡和防火墙是否符合预期：clusterctl check -v",
                )
            ),
        },
    ),
    "CC-DEEP-004": Entry(
        "warning",
        Text("a node is slow in collectives", "某个节点的集合通信很慢"),
        why=Text(
            "The slowest node sets the speed of every all_reduce: all other nodes wait for it in each step.",
            "最慢的节点决定每次 all_reduce 的速度：其他节点每一步都要等待它。",
        ),
        what=Text(
            "With every partner, this node is clearly slower than the other nodes: under 40 % of the bandwidth, or five times the latency. Check its NIC's speed, cable and error counters, what else uses the node and the NIC, and whether it uses a different NIC than the other nodes.",
            "该节点与每个节点配对时都明显慢于其他节点：带宽不到 40 %，或者延迟达到五倍。检查其网卡的速率、线缆和错误计数，是否有其他程序占用节点和网卡，以及训练使用的网卡是否与其他节点不同。",
        ),
        do=Text(
            "Check speed, cable and error counters of its NIC: `ip -s link show NIC`",
            "检查其网卡的速率、网线和错误计数：`ip -s link show NIC`",
        ),
        cases={
            "": Case(fix=same("$ ip -s link show {nic}; cat /sys/class/net/{nic}/speed")),
        },
    ),
    "CC-DEEP-005": Entry(
        "warning",
        Text("a link between two nodes is slow", "两个节点之间的链路很慢"),
        why=Text("The slowest link sets the speed of the ring.", "环形通信的速度取决于最慢的链路。"),
        what=Text(
            "Between these two nodes the speed is clearly lower than between each of them and other nodes. The path between them is longer or busier: another switch, a busy uplink, a cable that loses packets.",
            "这两个节点之间的速度明显低于它们与其他节点之间的速度。两者之间的路径更长或更繁忙：经过另一台交换机、上行链路繁忙，或者线缆丢包。",
        ),
        do=Text(
            "Check switch, uplink and cables between the two", "检查这两个节点之间的交换机、上行链路和网线"
        ),
        cases={
            "": Case(
                fix=Text(
                    "check cables, switch ports and other traffic between these two, or {exclude}",
                    "检查这两个节点之间的网线、交换机端口和其他流量，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-DEEP-006": Entry(
        "error",
        Text("the deep check did not finish", "深度检查未完成"),
        why=Text(
            "If the deep check cannot start or finish, training cannot either.",
            "深度检查无法启动或完成时，训练同样无法启动或完成。",
        ),
        what=Text(
            "The job of the deep check could not be started, or ended before it reported its results. It is started like every run, so whatever stops it would stop a launch too: the evidence is the error that a launch would report.",
            "深度检查的作业无法启动，或者在报告结果之前就结束了。它的启动方式与普通任务相同，因此同样的问题也会使 launch 失败：显示的报错与 launch 的报错相同。",
        ),
        do=Text(
            "Fix the reported error; a launch would report the same one",
            "解决报告的错误；launch 也会报告同样的错误",
        ),
        cases={
            "setup": Case(fix=Text("launch the job once, then check again", "先启动一次作业，再检查")),
            "": Case(fix=same("{way_out}")),
        },
    ),
}
