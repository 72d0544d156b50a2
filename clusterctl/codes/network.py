"""The training network and collectives: CC-NET, CC-DEEP."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

SET_IP = "inventory, node {node}: ip: {ip}"
AT_START = "when a run starts"

ENTRIES: Mapping[str, Entry] = {
    "CC-NET-001": Entry(
        "error",
        "a NIC does not exist",
        why="Gloo and NCCL use this name and fail if no such interface exists.",
        what='The inventory\'s `nic:` names an interface that this node does not have. Names differ between machines and may change when a card moves to another slot. Gloo prints "Unable to find address for", NCCL "no socket interface found".',
        do="Set `nic:` of that node as shown; the message lists its NICs",
        cases={
            "": Case(fix="inventory, node {node}: {line}"),
        },
    ),
    "CC-NET-002": Entry(
        "error",
        "a NIC is down",
        why="No packet can leave through it.",
        what="The interface is switched off, or has no carrier: no cable, no link at the switch, or an empty bond.",
        do="Run `sudo ip link set NIC up`; check the cable and the switch",
        cases={
            "cable": Case(fix="check the cable and the switch port"),
            "": Case(fix=Same("# ip link set {nic} up")),
        },
    ),
    "CC-NET-003": Entry(
        "error",
        "the training address is on another NIC",
        why="The other nodes connect to the address, but NCCL and Gloo would listen on the NIC.",
        what="`ip` and `nic` of this node contradict each other: the address belongs to a NIC that is not listed.",
        do="Correct `nic:` or `ip:` so that the NIC has the address",
        cases={
            "": Case(fix="inventory, node {node}: nic: [{nic}]"),
        },
    ),
    "CC-NET-004": Entry(
        "error",
        "no NIC has the training address",
        why="A node cannot listen on an address that it does not have, so other nodes cannot connect to it.",
        what="The address at which the other nodes connect to this node is not one of its own. Often `host:` is a public address that a gateway translates. Then set the node's own address as `ip:`.",
        do="Correct a typing error in `ip:`; if `host:` is a public address, set the node's own address as `ip:`",
        cases={
            "": Case(fix=Same("{lines}")),
        },
    ),
    "CC-NET-005": Entry(
        "error",
        "the node has no training address",
        why="The other nodes have no address to connect to.",
        what="None of `ip:`, `network:` and `host:` gives an address of this node. A `host:` from ~/.ssh/config, for example, does not resolve on the node itself. Set `ip:`.",
        do="Set `ip:` for the node, or `network:` for all",
        cases={
            "": Case(fix=SET_IP),
        },
    ),
    "CC-NET-006": Entry(
        "error",
        "no route to another node",
        why="The kernel has no route to that node's training address.",
        what="No entry of the node's routing table covers the other node's training address. Either the address is in a network that this node is not part of (a private network of another cluster), or a route or default gateway is missing.",
        do="Check that the nodes are in one network: `ip route get ADDRESS` on the node",
        cases={
            "": Case(fix=Same("$ ip route get {address}; ip route")),
        },
    ),
    "CC-NET-007": Entry(
        "error",
        "packets leave through another NIC",
        why="The kernel's route to the other nodes does not use the chosen NIC: this is slow, and often hangs.",
        what="The training NIC and the kernel's route to the other nodes' training addresses do not match. NCCL and Gloo listen on the chosen NIC, while connections leave through the routed one. Use addresses of one network on all nodes (`network:` or `ip:`), or choose the NIC that the route uses.",
        do="Set `nic:` as shown, or give every node an `ip:` in one network",
        cases={
            "": Case(fix="inventory, node {node}: nic: [{nic}]  # or give every node an ip: in one network"),
        },
    ),
    "CC-NET-008": Entry(
        "error",
        "two nodes have the same training address",
        why="Both nodes use the same address: ranks connect to the wrong machine.",
        what="Every node needs a different training address. Machines cloned from one image may share an address; the addresses of container bridges (172.17.0.1) are the same on every host. Choose the NIC with `nic:` or `network:`.",
        do="Set a different `ip:` for each of them",
        cases={
            "lines": Case(fix=Same("{lines}")),
            "": Case(fix="inventory: set a different ip: for each of them"),
        },
    ),
    "CC-NET-009": Entry(
        "warning",
        "the MTUs differ",
        why="Small messages pass and large ones hang when one side sends frames that the other side drops.",
        what="The training NICs have different MTUs. TCP usually finds the smaller one; if ICMP is blocked, or with RoCE, large transfers hang.",
        do="Set the same MTU on all nodes and the switch",
        cases={
            "": Case(fix=Same("{commands}")),
        },
    ),
    "CC-NET-010": Entry(
        "info",
        "the hostname resolves to loopback",
        why="Gloo alone would listen on loopback; clusterctl sets the NIC for Gloo, so its runs are not affected.",
        what="The node's own hostname resolves to 127.x.x.x, as Debian's installer writes it into /etc/hosts. Programs that look up their own address by hostname then get loopback: Gloo without GLOO_SOCKET_IFNAME, torchrun's c10d rendezvous without --local-addr. `clusterctl launch` sets both.",
        do="Nothing to do for clusterctl; to start torchrun by hand, correct `/etc/hosts`",
        cases={
            "": Case(fix="for programs started by hand, in /etc/hosts on {node}: {ip} {host}"),
        },
    ),
    "CC-NET-011": Entry(
        "error",
        "the training address is loopback",
        why="Other machines cannot connect to an address in 127.0.0.0/8.",
        what="A loopback address works only between nodes on one machine.",
        do="Set `ip:` to an address that the other nodes can connect to",
        cases={
            "": Case(fix=SET_IP),
        },
    ),
    "CC-NET-012": Entry(
        "warning",
        "NIC speeds differ",
        why="The slowest link sets the speed of every all-reduce.",
        what="The training NICs report different link speeds (Mbit/s). A bad cable or port makes a link fall back to a lower speed.",
        do="Check cable, port and switch of the slow one; or choose a faster `nic:`",
        cases={
            "": Case(fix=Same("{command}")),
        },
    ),
    "CC-NET-013": Entry(
        "warning",
        "training would use a container or VPN network",
        why="The NIC was chosen because it has the address, but it looks like the NIC of a container engine or VPN.",
        what="No NIC is set, and the one that has the training address is a bridge or tunnel. If that is intended, set it as `nic:`; otherwise set the address of the real network as `ip:`.",
        do="Set a physical NIC as `nic:`, or set `network:`; ignore this if it is intended",
        cases={
            "": Case(fix="inventory, node {node}: nic: [{nic}]  # if it is intended"),
        },
    ),
    "CC-NET-014": Entry(
        "warning",
        "a configuration file changes NCCL's settings",
        why="NCCL reads this file without a message, on this node only.",
        what="/etc/nccl.conf, ~/.nccl.conf or the file in NCCL_CONF_FILE sets NCCL variables. Environment variables override these files. Variables that only the file sets make this node differ from the others.",
        do="Check `/etc/nccl.conf` and `~/.nccl.conf` on that node: remove what is not intended, or make it the same on all nodes",
        cases={
            "": Case(fix="put the settings that all nodes need into `env:` of the job; {command}"),
        },
    ),
    "CC-NET-015": Entry(
        "warning",
        "the training address is not the NIC's first",
        why="Gloo and NCCL use the first address of the NIC, but the other nodes connect to this one.",
        what="The NIC has several IPv4 addresses and the training address is not the first of them. It works as long as all nodes can connect to the first addresses too.",
        do="Set `ip:` as shown",
        cases={
            "": Case(fix=SET_IP),
        },
    ),
    "CC-NET-016": Entry(
        "error",
        "a NIC has no IPv4 address",
        why="Gloo and NCCL find no address on it to listen on.",
        what="The NIC exists and is up but has no IPv4 address. The members of a bond or bridge have none: set the bond or bridge as `nic:`. Otherwise restore the NIC's address. Another NIC would put the training on another network, often the slower one of SSH.",
        do="Restore the NIC's address (`ip addr add`); for the member of a bond, set `nic:` as shown",
        cases={
            "restore": Case(fix=Same("{command}")),
            "": Case(fix="inventory, node {node}: {line}"),
        },
    ),
    "CC-NET-017": Entry(
        "warning",
        "the training address is public",
        why="PyTorch's own traffic is not authenticated or encrypted: anyone who can reach its ports can run code in the job.",
        what="The whole internet can reach this address, unless a firewall blocks it. TCPStore, Gloo and NCCL accept every connection. Train over a private network, or let a firewall accept only the nodes' own addresses: on the rendezvous port of node 0 (see `ports:`) and on ephemeral ports (`ip_local_port_range`).",
        do="Set a private address with `ip:` or `network:`, or use a firewall",
        cases={
            "private": Case(fix=SET_IP),
            "": Case(fix="let a firewall accept only the nodes' own addresses"),
        },
    ),
    "CC-NET-018": Entry(
        "warning",
        "training uses a virtual NIC",
        why="Tunnels and virtual links reduce bandwidth, and the node has a physical NIC with an address.",
        what="The chosen NIC is a tunnel, a VPN or a virtual link (tun, wireguard, vxlan, veth, dummy), and the node also has a physical one. This is right if the tunnel is the only connection between the nodes; otherwise choose the physical NIC by its address or name.",
        do="Set the physical NIC as `nic:`, if the other nodes can connect to it",
        cases={
            "": Case(fix="inventory, node {node}: nic: [{nic}]  # if the other nodes can connect to it"),
        },
    ),
    "CC-NET-019": Entry(
        "warning",
        "a faster NIC is not used",
        why="Gradients are sent through the chosen NIC; the faster one stays idle.",
        what="The node has a physical NIC, with a link and an address, that is faster than the chosen one. This is usual if SSH uses a slow management network and the inventory has only `host:`: set the fast network with `network:` or the NIC with `nic:`. NCCL on InfiniBand or RoCE ports is not affected: it finds those ports itself and uses the NIC only to set up connections.",
        do="Set `nic:` as shown",
        cases={
            "": Case(fix="inventory, node {node}: nic: [{nic}]"),
        },
    ),
    "CC-NET-020": Entry(
        "error",
        "no free port for the rendezvous",
        what="Node 0 found no free port in the inventory's `ports`, or none outside the kernel's ephemeral range. The message shows the range that was searched.",
        do="Set a wider `ports:` in the inventory, or find the processes that use them: `ss -ltnp` on node 0",
        when=AT_START,
        cases={
            "reported": Case(
                Same("{message}"),
                "set a wider `ports:` in the inventory; `ss -ltnp` on the node shows which process uses them",
            ),
        },
    ),
    "CC-NET-021": Entry(
        "error",
        "node 0 cannot listen for the other nodes",
        what="The agents of a run connect to the agent of node 0 at its training address. That agent could not listen there; the message shows the reason. Check that the address (`ip:`, or that of the NIC) belongs to node 0, that with `ports:` a second port is free besides the one for the rendezvous, and that the account may open enough files: the hub of a run needs one for each node, raises its own soft limit, and cannot raise the hard limit (`nofile` in limits.conf).",
        do="Check that `ip:` or `nic:` belongs to node 0, and that with `ports:` a second port is free",
        when=AT_START,
        cases={
            "reported": Case(
                Same("{message}"),
                "in the inventory, `ip:` or `nic:` of node 0 must be its own, and two of `ports:` must be free; if the reason is the number of open files, raise `nofile` on the node",
            ),
        },
    ),
    "CC-NET-022": Entry(
        "error",
        "a node cannot connect to the agent of node 0",
        what='Nothing was started. The node connects from its own training address to that of node 0; the evidence is the error of its system. "Connection refused" or no response: a firewall, a wrong address or a wrong route; `clusterctl check` shows NICs and routes. Training needs open ports between the nodes anyway; if only some are open, list them as `ports:` in the inventory. If the other side rejects the token of the run, another program listens on that port.',
        do="`clusterctl check` tests every connection; open the ports between the nodes, or list the open ones as `ports:`",
        when=AT_START,
        cases={
            "": Case(
                "cannot connect to the agent of node 0 over the training network, port {port}",
                "allow connections from the nodes to node 0 on every port of the training network, or list open ports as `ports:`",
            ),
        },
    ),
    "CC-NET-023": Entry(
        "warning",
        "an InfiniBand port has a link but is not active",
        why="NCCL does not use it, and falls back to fewer ports or to plain TCP.",
        what="The cable is connected and the link is up, but the port stays in INIT or ARMED. No subnet manager responds on this InfiniBand fabric, or it does not manage the port. Ports without a cable are not reported, only counted.",
        do="Check cable, switch port and subnet manager: `ibstat`, `sminfo`",
        cases={
            "": Case(fix=Same("# ibstat; sminfo")),
        },
    ),
    "CC-NET-024": Entry(
        "warning",
        "the nodes have different numbers of active InfiniBand ports",
        why="NCCL may refuse (`Detected mixed local Net device counts across ranks`) or use the smaller number.",
        what="Some nodes have more active InfiniBand or RoCE ports than others: a cable is unplugged, or an adapter or its driver is missing.",
        do="Bring the missing ports up, or select the same number with `NCCL_IB_HCA`",
        cases={
            "": Case(fix=Same("$ grep . /sys/class/infiniband/*/ports/*/state")),
        },
        texts=("Detected mixed local Net device counts across ranks",),
    ),
    "CC-NET-025": Entry(
        "error",
        "InfiniBand and RoCE are mixed",
        why="InfiniBand and Ethernet ports cannot communicate with each other: `Attempted to connect incompatible devices`.",
        what="The active ports are InfiniBand on some nodes and Ethernet (RoCE) on others, and no kind is present on all nodes. Nodes that have both work as long as NCCL_IB_HCA selects ports of one kind; `check` lists the ports.",
        do="Select ports of one kind with `NCCL_IB_HCA`, or set `NCCL_IB_DISABLE: 1`",
        cases={
            "": Case(fix="job: env: {NCCL_IB_DISABLE: 1}  # plain TCP, as a workaround"),
        },
        texts=("Attempted to connect incompatible devices",),
    ),
    "CC-NET-026": Entry(
        "warning",
        "InfiniBand port rates differ",
        why="The slowest port sets the speed of every all-reduce.",
        what="The slowest active port of some nodes has a lower rate than that of the others: a cable or a switch port made it fall back (`ibstatus` shows the same number).",
        do="Check cable and switch port of the slow one",
        cases={
            "": Case(fix="check cable and switch port; {command}"),
        },
    ),
    "CC-NET-027": Entry(
        "info",
        "network adapters cannot access GPU memory directly",
        why="Every byte is copied through the node's memory first: slower, but with no error.",
        what="The node has NVIDIA GPUs and active InfiniBand or RoCE ports, but GPUDirect RDMA is not available: the module nvidia_peermem is not loaded, and the kernel driver is not the open one, which needs no module (DMA-BUF).",
        do="Run `sudo modprobe nvidia-peermem`",
        cases={
            "": Case(fix=Same("# modprobe nvidia-peermem")),
        },
    ),
    "CC-NET-028": Entry(
        "info",
        "NCCL_IB_GID_INDEX is set",
        why="NCCL 2.21 and later find the right address themselves; the right index may differ between nodes.",
        what="A fixed GID index selects an address of the RoCE port by its position in a table, which differs between nodes and changes with the addresses. A wrong index ends in `ibv_modify_qp failed with error Invalid argument`.",
        do="Remove `NCCL_IB_GID_INDEX` from `env`",
        cases={
            "": Case(fix="remove {variable} from {source}"),
        },
    ),
    "CC-NET-029": Entry(
        "error",
        "the job uses NICs that a node does not have",
        why="A variable in the job's env overrides the one that launch sets, and is the same on every node.",
        what="NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME in the job's `env:` matches no NIC of the node. Gloo and TensorPipe take exact names, separated by commas, and all of them must exist: `=eth0`, `^docker0` and `eth` are NCCL's syntax, in which a bare name is a prefix, `=` means an exact name and `^` excludes names. Remove the variable: `launch` sets each of them for each node in the right syntax.",
        do="Remove the variable from `env:`; `launch` sets the right one on each node",
        cases={
            "": Case(fix="job: remove {variable} from env:"),
        },
    ),
    "CC-NET-030": Entry(
        "error",
        "two nodes cannot connect to each other",
        why="Gloo and NCCL connect all nodes, on ephemeral ports: a run would hang at its start.",
        what="The nodes listened on ephemeral ports of their training addresses and connected to each other; some connections failed. If only one direction fails, a firewall blocks it, most likely on the target node. Gloo and NCCL listen on ephemeral ports (`ip_local_port_range`), so all of these must be open between the nodes, not only the master's. If a node has no working connection in either direction, it is in another network or VLAN, or its link is down.",
        do="Open TCP ports 32768-60999 between the nodes; the evidence shows on which node",
        cases={
            "duplicate": Case(fix=Same("{command}")),
            "firewall": Case(fix="{command}  # open TCP ports {ports} for connections from {callers}"),
        },
    ),
    "CC-NET-031": Entry(
        "error",
        "large packets are lost",
        why="Small messages pass, so the run starts; the first large transfer hangs until a timeout.",
        what='Two nodes connect, but 256 KiB of data does not arrive: an MTU black hole. One NIC, switch or tunnel on the path carries only smaller packets than the ends send, and the ICMP message for that ("fragmentation needed") is blocked or never sent. Set the MTU of all NICs of the training network to what the whole path carries.',
        do="Set the same MTU on NICs and switch; to test: `sudo ip link set NIC mtu 1500`",
        cases={
            "": Case(fix=Same("{commands}")),
        },
    ),
    "CC-NET-032": Entry(
        "warning",
        "a connection between nodes is slow",
        why="Every all-reduce waits for the slowest connection.",
        what="A connection takes more than ten times as long as the others: its fastest round trip is above 5 ms, or its 256 KiB each way take more than 2 s. Typical causes: nodes in different buildings, a link that fell back to a low speed, a path through a tunnel or a busy router.",
        do="Check cable, port and load of the reported node; or choose another `nic:`",
        cases={
            "": Case(fix="check NIC, cable, switch port and other traffic on them, or {exclude}"),
        },
    ),
    "CC-NET-033": Entry(
        "error",
        "the master's port is closed",
        why="torchrun on the other nodes tries this port of node 0 until it times out.",
        what="Node 0 listened on a port that was chosen like torchrun's port, and a node that can connect to its other ports could not connect to this one. Without `ports:`, `launch` uses a port outside the kernel's ephemeral range (20000 and above); set a range that your firewall accepts, such as `ports: 20000-20100`.",
        do="Open it, or set `ports:` to a range that the firewall accepts",
        cases={
            "": Case(fix="inventory: ports: FIRST-LAST  # a range that the firewall accepts"),
        },
    ),
    "CC-NET-034": Entry(
        "info",
        "packets are smaller than the NICs allow",
        why="A device between the nodes has a lower MTU; it works, with more packets than needed.",
        what="The segment size that TCP negotiated is smaller than the MTU of both NICs allows: a router, tunnel or switch between the nodes has a lower MTU. RDMA over this path may fail.",
        do="It works; for full speed set the same large MTU on the whole path",
        cases={
            "": Case(
                fix="set the MTU of the switches and tunnels between them to that of the NICs, or ignore it: only speed is affected"
            ),
        },
    ),
    "CC-NET-035": Entry(
        "warning",
        "a node took no part in the network test",
        why="It is unknown whether the other nodes can connect to it.",
        what="The node answered the other checks, but then did not listen on its training address or did not report its connections in time. It may be overloaded, or a program on it blocks listening. If all `ports:` of the inventory are in use on node 0 it is an error: a launch would end with CC-NET-020.",
        do="The message shows the reason; run `clusterctl check` again",
        cases={
            "ports": Case(
                fix="inventory: ports: FIRST-LAST  # a wider range; processes that use them: {command}"
            ),
            "": Case(fix=Same("$ uptime; ss -tlnp")),
        },
    ),
    "CC-NET-036": Entry(
        "error",
        "another machine answers at a training address",
        why="Packets for this node go to another machine: ranks would wait until a timeout.",
        what="A connection to a node's training address and port was answered without the secret of this check. Two machines have the same address, a stale ARP entry or a NAT sends packets elsewhere, or a proxy is in between.",
        do="Two machines have this address: `sudo arping -D` finds the other",
        cases={
            "": Case(fix=Same("{command}")),
        },
    ),
    "CC-NET-037": Entry(
        "warning",
        "addresses are translated between the nodes (NAT)",
        why="The addresses that nodes announce differ from those that other nodes see: NCCL and Gloo may fail.",
        what="A node connected from its training address, and the other node saw another address: a NAT is between the nodes. This happens in containers with a bridge network: run them with the host network (`--network host`).",
        do="Set `ip:` to addresses that work between the nodes without NAT; containers need `--network host`",
        cases={
            "": Case(
                fix="use addresses that no NAT changes: `network:` or `nic:`; containers: --network host"
            ),
        },
    ),
    "CC-NET-038": Entry(
        "error",
        "too few ports for Ray in `ports:`",
        why="Ray takes a port for each of its processes and each worker.",
        what="With `launcher: ray` all ports of Ray come from the node's `ports:`: ten for Ray's own processes, one for each CPU, on which Ray starts a worker, and more if the job has many actors. Each run takes a block of its own, so two runs at once need two. Without `ports:` they come from those outside the kernel's ephemeral range.",
        do="Set a wider `ports:` in the inventory, or remove it",
        cases={
            "": Case(fix="inventory, node {node}: ports: {first}-{last}, or more"),
        },
    ),
    "CC-DEEP-001": Entry(
        "error",
        "the collective fails with one node",
        why="A real all_reduce failed whenever this node took part, so training would fail or hang there too.",
        what="An all_reduce of all nodes failed; each node was then tested alone, and in pairs with others. A node that fails alone has a broken GPU, driver or NCCL. A node that fails with every partner has a broken NIC, cable or firewall. The other nodes were also tested without it; leave it out with `--exclude` until it is fixed.",
        do="Leave it out with `--exclude`; check GPU, driver, NCCL and NIC of that node",
        cases={
            "": Case(fix="add --exclude {node}"),
        },
    ),
    "CC-DEEP-002": Entry(
        "error",
        "the collective fails between two nodes",
        why="Each of them works with other nodes but not with the other one: the fault is between these two.",
        what="An all_reduce of all nodes failed, and one of only these two fails as well, while each of them works with other nodes. The cause is a firewall rule, a route, a switch port or a smaller MTU between these two. With only two nodes it cannot be determined which one is the cause.",
        do="Check firewall, route, switch port and MTU between these two",
        cases={
            "": Case(fix="add --exclude {last}"),
        },
    ),
    "CC-DEEP-003": Entry(
        "error",
        "the collective fails, on no particular node",
        why="A real all_reduce of all nodes failed, and no single node or link was found to be the cause.",
        what="An all_reduce of all nodes failed, although smaller groups work, or no group works. If every pair works, check what grows with the number of nodes: open files, ports, timeouts. If no pair works, the cause is the same on all nodes: a firewall, the wrong NIC, a broken NCCL.",
        do="If every pair works: check limits that grow with the number of nodes. If none does: check NIC, NCCL and firewall on all nodes",
        cases={
            "": Case(
                fix="check what grows with the number of nodes: `ulimit -n`, ports, the backend's timeout"
            ),
            "no-pair": Case(
                fix="check that GPUs, NIC and firewall are as expected on all nodes: clusterctl check -v"
            ),
        },
    ),
    "CC-DEEP-004": Entry(
        "warning",
        "a node is slow in collectives",
        why="The slowest node sets the speed of every all_reduce: all other nodes wait for it in each step.",
        what="With every partner, this node is clearly slower than the other nodes: under 40 % of the bandwidth, or five times the latency. Check its NIC's speed, cable and error counters, what else uses the node and the NIC, and whether it uses a different NIC than the other nodes.",
        do="Check speed, cable and error counters of its NIC: `ip -s link show NIC`",
        cases={
            "": Case(fix=Same("$ ip -s link show {nic}; cat /sys/class/net/{nic}/speed")),
        },
    ),
    "CC-DEEP-005": Entry(
        "warning",
        "a link between two nodes is slow",
        why="The slowest link sets the speed of the ring.",
        what="Between these two nodes the speed is clearly lower than between each of them and other nodes. The path between them is longer or busier: another switch, a busy uplink, a cable that loses packets.",
        do="Check switch, uplink and cables between the two",
        cases={
            "": Case(fix="check cables, switch ports and other traffic between these two, or {exclude}"),
        },
    ),
    "CC-DEEP-006": Entry(
        "error",
        "the deep check did not finish",
        why="If the deep check cannot start or finish, training cannot either.",
        what="The job of the deep check could not be started, or ended before it reported its results. It is started like every run, so whatever stops it would stop a launch too: the evidence is the error that a launch would report.",
        do="Fix the reported error; a launch would report the same one",
        cases={
            "setup": Case(fix="launch the job once, then check again"),
            "": Case(fix=Same("{way_out}")),
        },
    ),
}
