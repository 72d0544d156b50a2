"""The training network and collectives: CC-NET, CC-DEEP."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-NET-001": Entry(
        "error",
        Text("a NIC does not exist", "网卡不存在"),
        why=Text(
            "Gloo and NCCL are told this name and fail when no NIC bears it.",
            "Gloo 和 NCCL 使用这个名字，没有这块网卡就会失败。",
        ),
        what=Text(
            'The inventory\'s `nic:` names an interface that this node does not have.\nNames differ from machine to machine and may change when a card moves to another slot. Gloo says "Unable to find address for", NCCL says "no socket interface found".'
        ),
        do=Text(
            "The `nic:` that is shown, at that node; the names that there are stand beside it",
            "照提示改那个节点的 `nic:`；实际有哪些网卡都列出来了",
        ),
        cases={
            "": Case(fix=Text("inventory, node {node}: {line}", "inventory，节点 {node}：{line}")),
        },
    ),
    "CC-NET-002": Entry(
        "error",
        Text("a NIC is down", "网卡没启用"),
        why=Text("No packet leaves through it.", "数据包无法从它发出。"),
        what=Text(
            "The interface is switched off, or has no carrier: no cable, no link at the switch, an empty bond."
        ),
        do=Text(
            "`sudo ip link set NIC up`; look at the cable and the switch",
            "`sudo ip link set NIC up`；看看网线和交换机",
        ),
        cases={
            "cable": Case(fix=Text("look at the cable and the switch port", "检查网线和交换机端口")),
            "": Case(fix=Text("# ip link set {nic} up")),
        },
    ),
    "CC-NET-003": Entry(
        "error",
        Text("the training address is on another NIC", "训练地址在另一块网卡上"),
        why=Text(
            "The other nodes connect to the address, but NCCL and Gloo would listen on the NIC.",
            "其他节点连接这个地址，而 NCCL 和 Gloo 会监听那块网卡。",
        ),
        what=Text(
            "`ip` and `nic` of this node contradict each other: the address belongs to a NIC that is not listed."
        ),
        do=Text(
            "Correct `nic:` or `ip:` so that the NIC has the address",
            "改 `nic:` 或 `ip:`，让这块网卡就是拥有该地址的那块",
        ),
        cases={
            "": Case(
                fix=Text("inventory, node {node}: nic: [{nic}]", "inventory，节点 {node}：nic: [{nic}]")
            ),
        },
    ),
    "CC-NET-004": Entry(
        "error",
        Text("no NIC has the training address", "没有网卡带这个训练地址"),
        why=Text(
            "The node cannot listen on an address that it does not have, so the others cannot reach it.",
            "节点无法监听它没有的地址，其他节点也就连不上它。",
        ),
        what=Text(
            "The address by which the others should reach this node is not one of its own.\nOften `host:` is a public address that a gateway translates. Then give the node's own address as `ip:`."
        ),
        do=Text(
            "A typing error in `ip:`, or `host:` is a public address: give the node's own one as `ip:`",
            "`ip:` 写错了，或 `host:` 是公网地址：把节点自己的内网地址写成 `ip:`",
        ),
        cases={
            "": Case(fix=Text("{lines}")),
        },
    ),
    "CC-NET-005": Entry(
        "error",
        Text("there is no training address", "没有训练地址"),
        why=Text("The other nodes would not know where to connect.", "其他节点不知道要连接哪里。"),
        what=Text(
            "Neither `ip:`, nor `network:`, nor `host:` leads to an address of this node.\nA `host:` from ~/.ssh/config, for example, means nothing on the node itself. Give `ip:`."
        ),
        do=Text("Give the node an `ip:`, or a `network:` to all", "给节点写 `ip:`，或者统一写 `network:`"),
        cases={
            "": Case(fix=Text("inventory, node {node}: ip: {ip}", "inventory，节点 {node}：ip: {ip}")),
        },
    ),
    "CC-NET-006": Entry(
        "error",
        Text("no route to another node", "没有到另一个节点的路由"),
        why=Text(
            "The kernel has no way to send a packet to that node's training address.",
            "内核没有到那个节点训练地址的路由。",
        ),
        what=Text(
            "The routing table of the node has no entry that covers the other node's training address.\nEither the address is in a network that this node is not part of (a private network of another cluster), or a route or default gateway is missing."
        ),
        do=Text(
            "Are the nodes in one network? `ip route get ADDRESS` there",
            "节点在同一个网里吗？在节点上看 `ip route get 地址`",
        ),
        cases={
            "": Case(fix=Text("$ ip route get {address}; ip route")),
        },
    ),
    "CC-NET-007": Entry(
        "error",
        Text("packets leave by another NIC", "数据包从别的网卡出去"),
        why=Text(
            "The kernel routes to the other nodes by a NIC that is not the chosen one: slow at best, often a hang.",
            "内核到其他节点的路由不走选定的网卡：轻则慢，常常会卡住。",
        ),
        what=Text(
            "The NIC for training and the kernel's route to the other nodes' training addresses disagree.\nNCCL and Gloo listen on the chosen NIC, while connections leave by the routed one. Use addresses of one network on all nodes (`network:` or `ip:`), or choose the NIC that the route takes."
        ),
        do=Text(
            "The `nic:` that is shown, or an `ip:` in one network for every node",
            "照提示改 `nic:`，或者给每个节点写同一个网里的 `ip:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: nic: [{nic}]  # or give every node an ip: in one network",
                    "inventory，节点 {node}：nic: [{nic}]  # 或者给每个节点写同一个网段的 ip:",
                )
            ),
        },
    ),
    "CC-NET-008": Entry(
        "error",
        Text("two nodes have the same training address", "两个节点的训练地址相同"),
        why=Text(
            "Both would answer for the same place: ranks end up on the wrong machine.",
            "两台机器会应答同一个地址：rank 会落到错误的机器上。",
        ),
        what=Text(
            "Every node needs a training address of its own.\nMachines cloned from one image may share one; so do addresses of container bridges (172.17.0.1), which exist on every host. Choose the NIC by `nic:` or `network:`."
        ),
        do=Text("Give each of them its own `ip:`", "给每个节点写各自的 `ip:`"),
        cases={
            "lines": Case(fix=Text("{lines}")),
            "": Case(
                fix=Text("inventory: give each of them its own ip:", "inventory：给每个节点写各自的 ip:")
            ),
        },
    ),
    "CC-NET-009": Entry(
        "warning",
        Text("the MTUs differ", "MTU 不一致"),
        why=Text(
            "Small messages pass and large ones hang when one side sends frames that the other drops.",
            "一端发送的帧被另一端丢弃时，小消息能通过，大消息会卡住。",
        ),
        what=Text(
            "The training NICs have different MTUs.\nTCP usually finds the smaller one; where ICMP is blocked, or with RoCE, transfers hang once messages get large."
        ),
        do=Text("The same MTU on all nodes and the switch", "所有节点和交换机设成同样的 MTU"),
        cases={
            "": Case(fix=Text("{commands}")),
        },
    ),
    "CC-NET-010": Entry(
        "info",
        Text("the hostname means loopback", "主机名解析到回环地址"),
        why=Text(
            "Gloo would listen on loopback by itself; clusterctl names the NIC to it, so its launches are not affected.",
            "Gloo 自己会监听回环地址；clusterctl 会指定网卡，所以它的启动不受影响。",
        ),
        what=Text(
            "The node's own hostname resolves to 127.x.x.x, as Debian's installer writes it into /etc/hosts.\nPrograms that ask for \"my address\" by hostname then get loopback: Gloo without GLOO_SOCKET_IFNAME, torchrun's c10d rendezvous without --local-addr. A launch by clusterctl sets both."
        ),
        do=Text(
            "Nothing for our launches; for a torchrun by hand correct `/etc/hosts`",
            "用 clusterctl 启动不受影响；手工跑 torchrun 就要改 `/etc/hosts`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "for programs started by hand, in /etc/hosts on {node}: {ip} {host}",
                    "手工启动的程序需要在 {node} 的 /etc/hosts 里写：{ip} {host}",
                )
            ),
        },
    ),
    "CC-NET-011": Entry(
        "error",
        Text("the training address is loopback", "训练地址是回环地址"),
        why=Text(
            "No other machine can reach an address in 127.0.0.0/8.", "其他机器无法访问 127.0.0.0/8 里的地址。"
        ),
        what=Text("A loopback address works only between nodes on one machine."),
        do=Text("Give the node an address that others can reach as `ip:`", "`ip:` 写一个别人连得到的地址"),
        cases={
            "": Case(fix=Text("inventory, node {node}: ip: {ip}", "inventory，节点 {node}：ip: {ip}")),
        },
    ),
    "CC-NET-012": Entry(
        "warning",
        Text("the NIC speeds differ", "网卡速度不同"),
        why=Text(
            "The slowest link sets the pace of every all-reduce.", "最慢的链路决定每次 all-reduce 的速度。"
        ),
        what=Text(
            "The training NICs report different link speeds (Mbit/s).\nA bad cable or port makes a link fall back to a lower speed."
        ),
        do=Text(
            "Look at cable, port and switch of the slow one; a faster `nic:`",
            "查慢的那个节点的网线和交换机端口；或者换更快的 `nic:`",
        ),
        cases={
            "": Case(fix=Text("{command}")),
        },
    ),
    "CC-NET-013": Entry(
        "warning",
        Text("training would use a side network", "训练会走 docker、VPN 之类的旁路网络"),
        why=Text(
            "The NIC was chosen because it owns the address, but it looks like one of a container engine or VPN.",
            "选择这块网卡是因为它有该地址，但它看起来属于容器引擎或 VPN。",
        ),
        what=Text(
            "Nobody named a NIC, and the one that owns the training address is a bridge or tunnel.\nIf that is meant, name it by `nic:`; otherwise give the address of the real network as `ip:`."
        ),
        do=Text(
            "A real NIC as `nic:`, or `network:`; leave it if it is meant",
            "`nic:` 写真正的网卡，或者写 `network:`；本意如此就不用管",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: nic: [{nic}]  # if it is meant",
                    "inventory，节点 {node}：nic: [{nic}]  # 如果确实要用它",
                )
            ),
        },
    ),
    "CC-NET-014": Entry(
        "warning",
        Text("a settings file steers NCCL", "有配置文件影响 NCCL"),
        why=Text("NCCL reads it unseen, on this node only.", "NCCL 会直接读取它，而且只在这个节点上。"),
        what=Text(
            "/etc/nccl.conf, ~/.nccl.conf or the file in NCCL_CONF_FILE sets NCCL variables.\nEnvironment variables beat these files. What a file sets beyond the launch's variables makes this node differ."
        ),
        do=Text(
            "Read `/etc/nccl.conf` and `~/.nccl.conf` on that node: take out what is not meant, or the same on all nodes",
            "看那个节点的 `/etc/nccl.conf` 和 `~/.nccl.conf`：去掉不想要的，或者让各节点一样",
        ),
        cases={
            "": Case(
                fix=Text(
                    "put what all nodes need into `env:` of the job; {command}",
                    "把所有节点需要的设置写进作业的 `env:`；{command}",
                )
            ),
        },
    ),
    "CC-NET-015": Entry(
        "warning",
        Text("the training address is not the NIC's first", "训练地址不是网卡的第一个地址"),
        why=Text(
            "Gloo and NCCL are told the NIC and take its first address, not the one that the others were given.",
            "Gloo 和 NCCL 按网卡取它的第一个地址，与发给其他节点的地址不同。",
        ),
        what=Text(
            "The NIC has several IPv4 addresses and the training address is not the first of them.\nIt works as long as all nodes can reach each other by the first addresses too."
        ),
        do=Text("The `ip:` that is shown", "照提示写 `ip:`"),
        cases={
            "": Case(fix=Text("inventory, node {node}: ip: {ip}", "inventory，节点 {node}：ip: {ip}")),
        },
    ),
    "CC-NET-016": Entry(
        "error",
        Text("a NIC has no IPv4 address", "网卡没有 IPv4 地址"),
        why=Text(
            "Gloo and NCCL find no address on it to listen on.", "Gloo 和 NCCL 在它上面找不到可监听的地址。"
        ),
        what=Text(
            "The NIC exists and is up but bears no IPv4 address.\nThe members of a bond or bridge have none: name the bond or bridge. Otherwise give the NIC its address back. Another NIC would put the training on another network, often the slower one of SSH."
        ),
        do=Text(
            "Give the NIC its address back (`ip addr add`); for the member of a bond, the `nic:` that is shown",
            "给网卡重新配上地址（`ip addr add`）；如果是 bond 的成员网卡，照提示改 `nic:`",
        ),
        cases={
            "restore": Case(fix=Text("{command}")),
            "": Case(fix=Text("inventory, node {node}: {line}", "inventory，节点 {node}：{line}")),
        },
    ),
    "CC-NET-017": Entry(
        "warning",
        Text("the training address is public", "训练地址是公网地址"),
        why=Text(
            "PyTorch's own traffic has no password and no encryption: whoever reaches its ports can run code in the job.",
            "PyTorch 自己的通信没有密码也不加密：能访问其端口的人可以在作业里执行代码。",
        ),
        what=Text(
            "The address is one that the whole internet can reach, unless a firewall stands before it.\nTCPStore, Gloo and NCCL trust everybody who connects. Train over a private network, or let a firewall pass only the nodes' own addresses: the rendezvous port of node 0 (see `ports:`) and the ports that the kernel gives out (`ip_local_port_range`)."
        ),
        do=Text(
            "A private address as `ip:` or `network:`, or a firewall in front",
            "`ip:` 或 `network:` 改用内网，或者在前面放防火墙",
        ),
        cases={
            "private": Case(fix=Text("inventory, node {node}: ip: {ip}", "inventory，节点 {node}：ip: {ip}")),
            "": Case(
                fix=Text("let a firewall pass only the nodes' own addresses", "让防火墙只放通节点自己的地址")
            ),
        },
    ),
    "CC-NET-018": Entry(
        "warning",
        Text("training uses a virtual NIC", "训练走虚拟网卡"),
        why=Text(
            "Tunnels and virtual links cost bandwidth, and the node has a real NIC with an address.",
            "隧道和虚拟网卡会损失带宽，而节点有带地址的真实网卡。",
        ),
        what=Text(
            "The chosen NIC is a tunnel, a VPN or a virtual link (tun, wireguard, vxlan, veth, dummy), beside a physical one.\nRight where the tunnel is the only way between the nodes; otherwise choose the physical NIC's address or name."
        ),
        do=Text("The real NIC as `nic:`, if the others reach it", "如果其他节点连得到，`nic:` 写真正的网卡"),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: nic: [{nic}]  # if the other nodes can be reached by it",
                    "inventory，节点 {node}：nic: [{nic}]  # 如果能通过它连到其他节点",
                )
            ),
        },
    ),
    "CC-NET-019": Entry(
        "warning",
        Text("a faster NIC is not used", "更快的网卡没用上"),
        why=Text(
            "Gradients go over the chosen NIC; the faster one stays idle.",
            "梯度走选定的网卡；更快的那块闲置。",
        ),
        what=Text(
            "The node has a physical NIC, linked and with an address, whose speed is above that of the chosen one.\nUsual where SSH goes over a slow management network and `host:` is all that the inventory says: name the fast network by `network:` or the NIC by `nic:`. NCCL on InfiniBand or RoCE ports is not affected: it finds those by itself and uses the NIC only to set up."
        ),
        do=Text("The `nic:` that is shown", "照提示改 `nic:`"),
        cases={
            "": Case(
                fix=Text("inventory, node {node}: nic: [{nic}]", "inventory，节点 {node}：nic: [{nic}]")
            ),
        },
    ),
    "CC-NET-020": Entry(
        "error",
        Text("there is no free port for the rendezvous", "rendezvous 没有空闲端口"),
        what=Text(
            "Node 0 found no free port in the inventory's `ports`, or none outside the range that the kernel gives away. The message says among which it looked."
        ),
        do=Text(
            "A wider `ports:` in the inventory, or see who holds them: `ss -ltnp` on node 0",
            "把 inventory 的 `ports:` 放宽，或者在 0 号节点上用 `ss -ltnp` 查看占用端口的进程",
        ),
        when=Text("when a run starts", "run 启动时"),
        cases={
            "reported": Case(
                Text("{message}"),
                Text(
                    "set a wider `ports:` in the inventory; `ss -ltnp` on the node shows which process has them",
                    "在 inventory 里放宽 `ports:`；在节点上用 `ss -ltnp` 查看占用端口的进程",
                ),
            ),
        },
    ),
    "CC-NET-021": Entry(
        "error",
        Text("node 0 cannot listen for the other nodes", "0 号节点没法监听"),
        what=Text(
            "The agents of a run meet at node 0's, on its training address. It could not listen there: the message says why. Is the address (`ip:`, or that of the NIC) really one of node 0's? With `ports:`, is one of them free besides the one for the rendezvous? Or may an account open too few files there? The hub of a run has one open for each node, raises its own soft limit, and cannot raise the hard one (`nofile` in limits.conf)."
        ),
        do=Text(
            "Is `ip:` or `nic:` of node 0 really its own? With `ports:`, is a second one free?",
            "0 号节点的 `ip:`、`nic:` 真是它自己的吗？写了 `ports:` 的话，除了 rendezvous 还有空闲端口吗？",
        ),
        when=Text("when a run starts", "run 启动时"),
        cases={
            "reported": Case(
                Text("{message}"),
                Text(
                    "in the inventory, `ip:` or `nic:` of node 0 must be its own and two of `ports:` free; if open files are the reason, raise `nofile` on the node",
                    "inventory 里 0 号节点的 `ip:` 或 `nic:` 必须是它自己的，`ports:` 里要有两个空闲端口；如果是打开文件数的限制，调高节点上的 `nofile`",
                ),
            ),
        },
    ),
    "CC-NET-022": Entry(
        "error",
        Text("a node cannot reach the agent of node 0", "有节点连不到 0 号节点的 agent"),
        what=Text(
            'Nothing was started. The node connects from its own training address to node 0\'s; the evidence is the error of its system. "Connection refused": a firewall on node 0, or a wrong address. "No answer": a firewall or a wrong route between them; `clusterctl check` shows NICs and routes. Training needs open ports between the nodes anyway; where only some are open, name them as `ports:` in the inventory. "It does not know the token of this run": something else listens there.'
        ),
        do=Text(
            "`clusterctl check` tries every way; open the ports between the nodes, or name the open ones as `ports:`",
            "`clusterctl check` 会测试每个连接；放通节点之间的端口，或者用 `ports:` 写明放通了哪些",
        ),
        when=Text("when a run starts", "run 启动时"),
        cases={
            "": Case(
                Text(
                    "it cannot reach the agent of node 0 over the training network, port {port}",
                    "无法通过训练网络连接 0 号节点的 agent，端口 {port}",
                ),
                Text(
                    "let the nodes reach node 0 on every port of the training network, or name open ones as `ports:`",
                    "让各节点能通过训练网络访问 0 号节点的所有端口，或者用 `ports:` 写明放通的端口",
                ),
            ),
        },
    ),
    "CC-NET-023": Entry(
        "warning",
        Text("an InfiniBand port has a link but is not active", "InfiniBand 端口有链路但没激活"),
        why=Text(
            "NCCL does not use it, and falls back to fewer ports or to plain TCP.",
            "NCCL 不使用它，会改用更少的端口或普通 TCP。",
        ),
        what=Text(
            "The cable is in and the link is up, but the port stays in INIT or ARMED.\nNo subnet manager answers on this InfiniBand fabric, or it does not know the port. Ports without a cable are not reported, only counted."
        ),
        do=Text(
            "Cable, switch port, subnet manager: `ibstat`, `sminfo`",
            "查线缆、交换机端口、子网管理器：`ibstat`、`sminfo`",
        ),
        cases={
            "": Case(fix=Text("# ibstat; sminfo")),
        },
    ),
    "CC-NET-024": Entry(
        "warning",
        Text(
            "the nodes have different numbers of active InfiniBand ports",
            "各节点激活的 InfiniBand 端口数不同",
        ),
        why=Text(
            "NCCL may refuse (`Detected mixed local Net device counts across ranks`) or use the smaller number.",
            "NCCL 可能拒绝（`Detected mixed local Net device counts across ranks`），或者按较少的数量使用。",
        ),
        what=Text(
            "Some nodes have more active InfiniBand or RoCE ports: a cable is out, an adapter or its driver is gone."
        ),
        do=Text(
            "Bring the missing ports up, or name the same number by `NCCL_IB_HCA`",
            "把缺的端口启用，或者用 `NCCL_IB_HCA` 选相同的数目",
        ),
        cases={
            "": Case(fix=Text("$ grep . /sys/class/infiniband/*/ports/*/state")),
        },
        texts=("Detected mixed local Net device counts across ranks",),
    ),
    "CC-NET-025": Entry(
        "error",
        Text("InfiniBand and RoCE are mixed", "混用了 InfiniBand 和 RoCE"),
        why=Text(
            "InfiniBand and Ethernet ports cannot talk to each other: `Attempted to connect incompatible devices`.",
            "InfiniBand 和以太网端口不能互通：`Attempted to connect incompatible devices`。",
        ),
        what=Text(
            "The active ports of some nodes are InfiniBand and those of others Ethernet (RoCE), with no kind that all have.\nNodes that have both are fine as long as NCCL_IB_HCA names ports of one kind; `check` shows which ones there are."
        ),
        do=Text(
            "Choose ports of one kind by `NCCL_IB_HCA`, or `NCCL_IB_DISABLE: 1`",
            "用 `NCCL_IB_HCA` 只选一种，或者 `NCCL_IB_DISABLE: 1`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "job: env: {NCCL_IB_DISABLE: 1}  # plain TCP, as a way out",
                    "job: env: {NCCL_IB_DISABLE: 1}  # 改用普通 TCP，作为临时办法",
                )
            ),
        },
        texts=("Attempted to connect incompatible devices",),
    ),
    "CC-NET-026": Entry(
        "warning",
        Text("the rates of InfiniBand ports differ", "InfiniBand 端口速率不同"),
        why=Text(
            "The slowest port sets the pace of every all-reduce.", "最慢的端口决定每次 all-reduce 的速度。"
        ),
        what=Text(
            "The slowest active port of some nodes has a lower rate than that of the others: a cable or a switch port made it fall back (`ibstatus` shows the same number)."
        ),
        do=Text("Look at cable and port of the slow one", "查慢的那一个的线缆和端口"),
        cases={
            "": Case(fix=Text("look at cable and switch port; {command}", "检查网线和交换机端口；{command}")),
        },
    ),
    "CC-NET-027": Entry(
        "info",
        Text("network adapters do not reach GPU memory", "网卡不能直接访问显存（没有 GPUDirect RDMA）"),
        why=Text(
            "Every byte is copied through the node's memory first: slower, without any error.",
            "每个字节都要先经过节点内存：更慢，但不报错。",
        ),
        what=Text(
            "The node has NVIDIA GPUs and active InfiniBand or RoCE ports, and GPUDirect RDMA has no way: the module nvidia_peermem is not loaded, and the kernel driver is not the open one, which needs no module (DMA-BUF)."
        ),
        do=Text("`sudo modprobe nvidia-peermem`", "`sudo modprobe nvidia-peermem`"),
        cases={
            "": Case(fix=Text("# modprobe nvidia-peermem")),
        },
    ),
    "CC-NET-028": Entry(
        "info",
        Text("NCCL_IB_GID_INDEX is set", "设了 NCCL_IB_GID_INDEX"),
        why=Text(
            "NCCL 2.21 and later find the right address themselves; a number that fits one node may not fit another.",
            "NCCL 2.21 及以后会自己找到正确的地址；适合一个节点的编号不一定适合另一个。",
        ),
        what=Text(
            "A fixed GID index chooses an address of the RoCE port by its place in a table that differs between nodes and changes with addresses. Wrong ones end in `ibv_modify_qp failed with error Invalid argument`."
        ),
        do=Text("Take `NCCL_IB_GID_INDEX` out of `env`", "从 `env` 里去掉 `NCCL_IB_GID_INDEX`"),
        cases={
            "": Case(fix=Text("remove {variable} from {source}", "从 {source} 里删掉 {variable}")),
        },
    ),
    "CC-NET-029": Entry(
        "error",
        Text("the job names NICs that a node does not have", "作业里写的网卡名在某个节点上不存在"),
        why=Text(
            "A variable in the job's env beats the launch's own, and is the same on every node.",
            "作业 env 里的变量优先于启动时设置的值，而且在每个节点上都相同。",
        ),
        what=Text(
            "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME in the job's `env:` matches no NIC of the node.\nGloo and TensorPipe take exact names, comma-separated, and all of them must exist: `=eth0`, `^docker0` and `eth` are NCCL's grammar, in which a bare name is a prefix, `=` means exact and `^` everything but. Remove the variable: a launch sets each of them for each node in its own grammar."
        ),
        do=Text(
            "Take the variable out of `env:`; the launch sets the right one on each node",
            "从 `env:` 里去掉这个变量；启动时会给每个节点设对",
        ),
        cases={
            "": Case(fix=Text("job: remove {variable} from env:", "job：从 env: 里删掉 {variable}")),
        },
    ),
    "CC-NET-030": Entry(
        "error",
        Text("two nodes cannot connect to each other", "两个节点之间连不通"),
        why=Text(
            "Gloo and NCCL connect all nodes, on ports that the kernel picks: a run would hang at its start.",
            "Gloo 和 NCCL 用内核分配的端口连接所有节点：run 会在开始时卡住。",
        ),
        what=Text(
            "The nodes listened on their training addresses, on ephemeral ports, and called each other; some calls failed.\nWhere one direction is closed and the other open, a firewall stands between, most likely on the node that is called. Gloo and NCCL listen on ports that the kernel picks (`ip_local_port_range`), so all of those must be open between the nodes, not only the master's. A node that nobody reaches and that reaches nobody is in another network or VLAN, or has a dead link."
        ),
        do=Text(
            "Open TCP ports 32768-60999 between the nodes; the evidence says at which node to look",
            "节点之间放通 TCP 端口 32768-60999；检查结果里写了该看哪个节点",
        ),
        cases={
            "duplicate": Case(fix=Text("{command}")),
            "firewall": Case(
                fix=Text(
                    "{command}  # let TCP ports {ports} pass from {callers}",
                    "{command}  # 放通来自 {callers} 的 TCP 端口 {ports}",
                )
            ),
        },
    ),
    "CC-NET-031": Entry(
        "error",
        Text("large packets are lost", "大包被丢"),
        why=Text(
            "Small messages pass, so the run starts; the first large transfer hangs until a timeout.",
            "小消息能通过，所以 run 能启动；第一次大的传输会卡到超时。",
        ),
        what=Text(
            'Two nodes connect, and then 256 KiB do not arrive: an MTU black hole.\nOne NIC, switch or tunnel on the way carries smaller packets than the ends send, and the message that would say so (ICMP "fragmentation needed") is blocked or never sent. Give all NICs of the training network the MTU that the whole way carries.'
        ),
        do=Text(
            "The same MTU on NIC and switch: `sudo ip link set NIC mtu 1500` as a test",
            "网卡和交换机的 MTU 要一致；先用 `sudo ip link set NIC mtu 1500` 试",
        ),
        cases={
            "": Case(fix=Text("{commands}")),
        },
    ),
    "CC-NET-032": Entry(
        "warning",
        Text("a way between nodes is slow", "节点之间有一条路很慢"),
        why=Text("Every all-reduce waits for the slowest way.", "每次 all-reduce 都要等最慢的那条路径。"),
        what=Text(
            "A way takes more than ten times as long as others: its quickest round trip above 5 ms, or its 256 KiB each way above 2 s.\nNodes in different buildings, a link that fell back to a low speed, a path through a tunnel or a busy router."
        ),
        do=Text(
            "Cable, port and load of the node that is named; another `nic:`",
            "查报错指出的节点的网线、端口和负载；或者换 `nic:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "look at NIC, cable and switch port, and what else goes there, or {exclude}",
                    "检查网卡、网线、交换机端口和其他流量，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-NET-033": Entry(
        "error",
        Text("the master's port is closed", "主节点的端口不通"),
        why=Text(
            "torchrun on the other nodes waits for node 0 on this port until it gives up.",
            "其他节点上的 torchrun 会一直等待 0 号节点的这个端口，直到放弃。",
        ),
        what=Text(
            "Node 0 listened on a port chosen as torchrun's will be, and a node that reaches its other ports did not get in.\nWithout `ports:` a launch takes one outside the kernel's own range (20000 and above); name a range that your firewall passes as `ports: 20000-20100`."
        ),
        do=Text(
            "Open it, or `ports:` of a range that the firewall passes",
            "放通它，或者 `ports:` 写防火墙放通的范围",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory: ports: FIRST-LAST  # which the firewall passes",
                    "inventory：ports: FIRST-LAST  # 防火墙放通的范围",
                )
            ),
        },
    ),
    "CC-NET-034": Entry(
        "info",
        Text("packets are smaller than the NICs allow", "包比网卡允许的小"),
        why=Text(
            "Something between the nodes has a lower MTU; it works, with more packets than needed.",
            "节点之间有设备的 MTU 较小；能用，但数据包更多。",
        ),
        what=Text(
            "The segments that TCP settled on are smaller than the MTU of both NICs allows: a router, tunnel or switch between the nodes has a lower MTU. RDMA over this way may not work at all."
        ),
        do=Text(
            "Works; for full speed the same large MTU on the whole way", "能用；要全速就让整条路的 MTU 一样大"
        ),
        cases={
            "": Case(
                fix=Text(
                    "give switches and tunnels between them the NICs' MTU, or leave it: it only costs some speed",
                    "让节点之间的交换机和隧道使用网卡的 MTU；也可以不管，只影响一点速度",
                )
            ),
        },
    ),
    "CC-NET-035": Entry(
        "warning",
        Text("a node took no part in the proof on the wire", "有节点没有参加连通性实测"),
        why=Text("Whether the others reach it is not known.", "不知道其他节点能否连接它。"),
        what=Text(
            "The node answered the other questions, and then did not listen on its training address or did not tell what came of its calls in time. It may be overloaded, or a program there keeps it from listening. Where all `ports:` of the inventory are in use on node 0 it is an error: a launch ends with CC-NET-020."
        ),
        do=Text(
            "The message says why; `clusterctl check` again", "报错里写了原因；再跑一次 `clusterctl check`"
        ),
        cases={
            "ports": Case(
                fix=Text(
                    "inventory: ports: FIRST-LAST  # a wider range; who holds them: {command}",
                    "inventory：ports: FIRST-LAST  # 更宽的范围；查看占用端口的进程：{command}",
                )
            ),
            "": Case(fix=Text("$ uptime; ss -tlnp")),
        },
    ),
    "CC-NET-036": Entry(
        "error",
        Text("somebody else answers at a training address", "训练地址上有别的机器应答"),
        why=Text(
            "Packets for this node go to another machine: ranks would wait for one that never comes.",
            "发给该节点的数据包会到另一台机器：rank 会一直等待。",
        ),
        what=Text(
            "A call to a node's training address and port was answered by somebody who does not know the secret of this check.\nTwo machines have the same address, a stale ARP entry or a NAT sends packets elsewhere, or a proxy stands between."
        ),
        do=Text(
            "Two machines have this address: `sudo arping -D` finds the other",
            "两台机器用了同一个地址：用 `sudo arping -D` 找出另一台",
        ),
        cases={
            "": Case(fix=Text("{command}")),
        },
    ),
    "CC-NET-037": Entry(
        "warning",
        Text("addresses are translated on the way", "中间有地址转换（NAT）"),
        why=Text(
            "What the nodes tell each other as their addresses is not what the others see: NCCL and Gloo may fail.",
            "节点之间通告的地址与对方看到的不同：NCCL 和 Gloo 可能失败。",
        ),
        what=Text(
            "A node called from its training address and was seen under another one: a NAT stands between the nodes.\nContainers have this with a bridged network of their own: run them with the host's (`--network host`)."
        ),
        do=Text(
            "An `ip:` on which the nodes see each other without NAT; containers with `--network host`",
            "`ip:` 写节点之间不经 NAT 就能互通的地址；容器用 `--network host`",
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
    "CC-DEEP-001": Entry(
        "error",
        Text("the collective fails with a node", "集合通信在某个节点上失败"),
        why=Text(
            "A real all_reduce failed whenever this node took part, so training would fail or hang there too.",
            "只要该节点参与，实际的 all_reduce 就失败，训练也会在那里失败或卡住。",
        ),
        what=Text(
            "An all_reduce of all nodes failed; each node was then tried alone, and in pairs with others.\nA node that fails alone has a broken GPU, driver or NCCL. One that fails with every partner has a broken NIC, cable or firewall. Whether the others work together without it was tried too; `--exclude` it until it is mended."
        ),
        do=Text(
            "Leave it out by `--exclude`; GPU, driver, NCCL or NIC of that node",
            "用 `--exclude` 跳过它；查它的 GPU、驱动、NCCL、网卡",
        ),
        cases={
            "": Case(fix=Text("add --exclude {node}", "加 --exclude {node}")),
        },
    ),
    "CC-DEEP-002": Entry(
        "error",
        Text("the collective fails between two nodes", "两个节点之间的集合通信失败"),
        why=Text(
            "Each works with others, but not with the other: something between just these two breaks the job.",
            "两个节点与其他节点都能通信，彼此之间却不能：问题就在这两个节点之间。",
        ),
        what=Text(
            "An all_reduce of all nodes failed, and so does one of just these two, while each of them works with others.\nBetween two nodes stand a firewall rule, a route, a switch port, or a path with a smaller MTU. With only two nodes nobody can say which of them it is."
        ),
        do=Text(
            "Firewall, route, switch port or MTU between just these two",
            "查这两个节点之间的防火墙、路由、交换机端口、MTU",
        ),
        cases={
            "": Case(fix=Text("add --exclude {last}", "加 --exclude {last}")),
        },
    ),
    "CC-DEEP-003": Entry(
        "error",
        Text("the collective fails", "集合通信失败，找不出是哪个节点"),
        why=Text(
            "A real all_reduce of all nodes failed, and no single node or link could be made out as the reason.",
            "所有节点一起做的 all_reduce 失败，找不出是哪个节点或哪条链路的原因。",
        ),
        what=Text(
            "An all_reduce of all nodes failed, although smaller groups work, or none of them does.\nIf every pair works, look at what grows with the number of nodes: open files, ports, time limits. If no pair works, the cause is the same everywhere: a firewall on all nodes, the wrong NIC, a broken NCCL."
        ),
        do=Text(
            "If every pair works: limits that grow with the number of nodes. If none does: the NIC, NCCL or a firewall everywhere",
            "两两都通：查随节点数增长的限制；两两都不通：查网卡选择、NCCL、防火墙",
        ),
        cases={
            "": Case(
                fix=Text(
                    "look at what grows with the number of nodes: `ulimit -n`, ports, the backend's time limit",
                    "检查随节点数增长的限制：`ulimit -n`、端口、后端的超时",
                )
            ),
            "no-pair": Case(
                fix=Text(
                    "check that GPUs, NIC and firewall are those you expect on all nodes: clusterctl check -v",
                    "检查所有节点的 GPU、网卡和防火墙是否符合预期：clusterctl check -v",
                )
            ),
        },
    ),
    "CC-DEEP-004": Entry(
        "warning",
        Text("a node is slow in collectives", "某个节点的集合通信慢"),
        why=Text(
            "The slowest node sets the pace of every all_reduce, so all others wait for this one in each step.",
            "最慢的节点决定每次 all_reduce 的速度，其他节点每一步都要等它。",
        ),
        what=Text(
            "A node reaches with every partner clearly less than nodes usually do: under 40 % of the bandwidth, or five times the latency.\nLook at its NIC's speed, cable and error counters, at what else uses the node and the NIC, and whether the training went over another NIC than on the others."
        ),
        do=Text(
            "Speed, cable and error counters of its NIC: `ip -s link show NIC`",
            "查它网卡的速率、网线、错误计数：`ip -s link show NIC`",
        ),
        cases={
            "": Case(fix=Text("$ ip -s link show {nic}; cat /sys/class/net/{nic}/speed")),
        },
    ),
    "CC-DEEP-005": Entry(
        "warning",
        Text("a link between two nodes is slow", "两个节点之间的链路慢"),
        why=Text("A ring goes at the pace of its slowest link.", "环的速度取决于最慢的链路。"),
        what=Text(
            "Two nodes reach with each other clearly less than each of them does with others.\nThe way between just these two is longer or fuller: another switch, a busy uplink, a cable that loses packets."
        ),
        do=Text("Switch, uplink or cable between the two", "查这两个节点之间的交换机、上行链路、网线"),
        cases={
            "": Case(
                fix=Text(
                    "look at cables, switch ports and other traffic between these two, or {exclude}",
                    "检查这两个节点之间的网线、交换机端口和其他流量，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-DEEP-006": Entry(
        "error",
        Text("the deep check did not come to its end", "深度检查没有做完"),
        why=Text(
            "What it could not start or finish, a training could not either.",
            "它无法启动或完成，训练也同样无法。",
        ),
        what=Text(
            "The job of the deep check could not be started, or ended before it had told what it found.\nIt is started as every run is, so what stands in its way stands in the way of a launch: the evidence is what a launch would say."
        ),
        do=Text(
            "The evidence is what a launch would say: mend that", "这里的内容与启动时的报错相同：先解决它"
        ),
        cases={
            "setup": Case(fix=Text("launch the job once, then check again", "先启动一次作业，再检查")),
            "": Case(fix=Text("{way_out}")),
        },
    ),
}
