"""Python, torch, environments: CC-PY, CC-TORCH, CC-SETUP."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

NO_PYTHON = Text(
    "Everything on a node is done by the configured Python; there is nothing else to install.",
    "节点上的所有操作都由配置的 Python 完成，不需要安装其他软件。",
)

ENTRIES: Mapping[str, Entry] = {
    "CC-PY-001": Entry(
        "error",
        Text("the Python interpreter is not there", "找不到这个 Python 解释器"),
        why=NO_PYTHON,
        what=Text(
            "SSH runs a non-login shell: what .bashrc or conda add to PATH is not seen. Write the absolute path as `python:`, or what makes it available as `activate:`."
        ),
        do=Text(
            "`python:` with the whole path; `clusterctl exec -- sh -c 'ls -d /opt/*/bin/python ~/venvs/*/bin/python'`",
            "`python:` 写完整路径；`clusterctl exec -- sh -c 'ls -d /opt/*/bin/python ~/venvs/*/bin/python'` 能找到它",
        ),
        cases={
            "": Case(
                Text("{python} was not found", "没有找到 {python}"),
                Text(
                    "set `python` in {python_source} to the absolute path of the node's interpreter (3.8 or later)",
                    "在 {python_source} 里把 `python` 设为节点上解释器的绝对路径（3.8 或更新）",
                ),
            ),
            "not-run": Case(
                Text("{python} cannot be run", "{python} 不能运行"),
                Text(
                    "set `python` in {python_source} to the absolute path of the node's interpreter (3.8 or later)",
                    "在 {python_source} 里把 `python` 设为节点上解释器的绝对路径（3.8 或更新）",
                ),
            ),
        },
    ),
    "CC-PY-002": Entry(
        "error",
        Text("the Python is too old", "Python 太旧"),
        why=NO_PYTHON,
        what=Text(
            "clusterctl needs Python 3.8 or later on a node, the same that runs torch. Name it by `python:`."
        ),
        do=Text("Name a Python of 3.8 or later as `python:`", "`python:` 换成 3.8 以上的"),
    ),
    "CC-PY-003": Entry(
        "error",
        Text("the Python ended before it answered", "Python 还没有返回结果就退出了"),
        why=NO_PYTHON,
        what=Text(
            "With status 0 it is nearly always an `exit` or `exec` in a start file of the login shell, such as .bashrc. Otherwise the interpreter starts and ends at once: a broken installation, a missing library, or a wrapper script that does not pass its standard input on."
        ),
        do=Text(
            "Status 0: an `exit` or `exec` in .bashrc. Else run `activate` and `python` by hand on the node; `activate` must not `exit`. A missing shared library needs LD_LIBRARY_PATH in `activate`",
            "状态码为 0：.bashrc 里有 `exit` 或 `exec`。否则在节点上手工执行 `activate` 和 `python`；`activate` 里不能有 `exit`。缺共享库时在 `activate` 里设置 LD_LIBRARY_PATH",
        ),
        cases={
            "activate": Case(
                Text(
                    "`activate` ended the shell with status {status}, so {python} was never started",
                    "`activate` 以状态 {status} 结束了 shell，{python} 没有启动",
                ),
                Text(
                    "let `activate` in the inventory or job prepare the shell only: no `exit`, in what it sources neither",
                    "inventory 或作业里的 `activate` 只准备 shell 环境：不能有 `exit`，它 source 的文件里也不能有",
                ),
            ),
            "library": Case(
                Text(
                    "{python} is there, but cannot load the shared library {library}",
                    "{python} 存在，但无法加载共享库 {library}",
                ),
                Text(
                    "let `activate` export LD_LIBRARY_PATH with the directory of that library, or name another `python`",
                    "在 `activate` 里 export LD_LIBRARY_PATH，包含该库所在目录；或者换一个 `python`",
                ),
            ),
            "traceback": Case(
                Text("{python} came up and failed at once", "{python} 启动后立即失败"),
                Text(
                    "a file there hides a module of Python: see PYTHONPATH, and the path in the last lines shown",
                    "那里有文件与 Python 模块同名：检查 PYTHONPATH 和最后几行里的路径",
                ),
            ),
            "shell-ended": Case(
                Text(
                    "no interpreter came up: the login shell ended with status 0 before {python} answered",
                    "解释器没有启动：登录 shell 以状态 0 结束，{python} 还没有返回结果",
                ),
                Text(
                    "look for `exit` and `exec` in the login shell's start-up files (.bashrc, .profile, .zshenv, config.fish): a shell that is not interactive must come to their end",
                    "在登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里找 `exit` 和 `exec`：非交互 shell 必须能执行到文件末尾",
                ),
            ),
            "": Case(
                Text(
                    "no interpreter came up: the login shell or {python} {status}",
                    "解释器没有启动：登录 shell 或 {python} {status}",
                ),
                Text(
                    "see what `{command}` says there, and look for `exit` in the login shell's start-up files (.bashrc, .profile, .zshenv, config.fish)",
                    "在节点上查看 `{command}` 的输出，并在登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里找 `exit`",
                ),
            ),
            "activated": Case(
                Text(
                    "no interpreter came up: the login shell, `activate` or {python} {status}",
                    "解释器没有启动：登录 shell、`activate` 或 {python} {status}",
                ),
                Text(
                    "see what `{command}` says there, and look for `exit` in the login shell's start-up files (.bashrc, .profile, .zshenv, config.fish)",
                    "在节点上查看 `{command}` 的输出，并在登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里找 `exit`",
                ),
            ),
        },
    ),
    "CC-PY-004": Entry(
        "error",
        Text("`activate` hangs", "`activate` 卡住不动"),
        why=NO_PYTHON,
        what=Text(
            "The shell line `activate:` of the inventory or the job did not come to its end, so no Python was started. It has no terminal and no input: a command in it that asks, waits for a network mount or runs on holds it up."
        ),
        do=Text(
            "Something in `activate` waits for input or for a dead file system: shorten it line by line",
            "`activate` 里有东西在等输入，或者在等一个坏掉的文件系统：逐行删减来定位",
        ),
        cases={
            "": Case(
                Text(
                    "`activate` did not come to its end within {limit:g} s: {activate}",
                    "`activate` 在 {limit:g} 秒内没有执行完：{activate}",
                ),
                Text(
                    "let `activate` prepare the shell only: nothing in it may wait, ask, or run on; try it there by hand",
                    "`activate` 只准备 shell 环境：其中的命令不能等待、要求输入或一直运行；在节点上手工执行试试",
                ),
            ),
        },
    ),
    "CC-PY-010": Entry(
        "error",
        Text("the Python versions differ", "各节点 Python 版本不同"),
        why=Text(
            "Object collectives pickle across nodes, and compiled packages differ between Python versions.",
            "对象集合操作在节点之间传递 pickle，而编译包随 Python 版本不同。",
        ),
        what=Text(
            "All nodes must run the same X.Y of Python.\ntorch wheels, compiled extensions and pickles belong to one X.Y. A difference in the third number is harmless. Name the interpreter of each node by `python:`, per node if need be."
        ),
        do=Text(
            "The same Python everywhere: `python:` or `activate:` of the node that is named",
            "统一版本：改报错指出的节点的 `python:` 或 `activate:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: python: /path/to/{python}  # now {path}",
                    "inventory，节点 {node}：python: /path/to/{python}  # 现在是 {path}",
                )
            ),
        },
    ),
    "CC-PY-011": Entry(
        "warning",
        Text("`activate` failed", "`activate` 失败"),
        why=Text(
            "What it was to set up may be missing: Python was started all the same.",
            "它要设置的内容可能缺失：Python 仍然启动了。",
        ),
        what=Text(
            "The shell line `activate:` of the inventory or the job ended with another status than 0.\nA file that it sources is not there, a module or an environment has another name on this node. The status is that of its last command, so a harmless one at the end counts too: end the line with `|| true` if it is meant."
        ),
        do=Text(
            "Run the line by hand on that node; join several by `&&`",
            "在那个节点上手工执行这一行；多行之间用 `&&` 连接",
        ),
        cases={
            "": Case(fix=Text("$ bash -c {line}")),
        },
    ),
    "CC-PY-012": Entry(
        "warning",
        Text("Python is outside the activated environment", "Python 不在已激活的环境里"),
        why=Text(
            "The job would run with the packages of another Python than the one that `activate` prepares.",
            "作业会使用另一个 Python 的包，而不是 `activate` 准备的那个。",
        ),
        what=Text(
            "`activate` switches to a conda environment or venv, and `python:` names an interpreter that is not of it.\nA bare name is looked up on PATH after `activate`, so `python: python` takes the environment's own. An absolute path is taken as it is: name the one in the environment, or leave `activate` out. `python3` may be another one than `python` where an environment has only the latter."
        ),
        do=Text(
            "`python: python`, or the path inside the environment, as shown",
            "写 `python: python`，或者照提示写环境里的路径",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: python: {environment}/bin/python",
                    "inventory，节点 {node}：python: {environment}/bin/python",
                )
            ),
        },
    ),
    "CC-PY-013": Entry(
        "warning",
        Text("`activate` gives different things", "各节点 `activate` 的结果不同"),
        why=Text(
            "What is built or loaded on one node with another compiler or CUDA may fail or compute differently there.",
            "用另一个编译器或 CUDA 在一个节点上编译或加载的代码，可能失败或结果不同。",
        ),
        what=Text(
            "After `activate` the nodes differ in the name of the active environment, the CUDA toolkit or the compiler.\nThe toolkit is that of the nvcc on PATH, or of CUDA_HOME; the compiler is cc, gcc or clang, whichever comes first in this order. torch's own CUDA is compared elsewhere; these two matter for extensions and torch.compile."
        ),
        do=Text("Load the same modules or environment on all nodes", "让所有节点加载相同的 module 或环境"),
        cases={
            "": Case(
                fix=Text(
                    "make `activate` name one environment, toolkit and compiler, with versions, for all nodes",
                    "让 `activate` 在所有节点上使用同一个环境、工具包和编译器，并写明版本",
                )
            ),
        },
    ),
    "CC-PY-014": Entry(
        "warning",
        Text("`activate` complains", "`activate` 打印了错误"),
        why=Text(
            "It ended well and yet said that something went wrong: what it was to set up may be missing.",
            "它正常结束，但输出了报错：它要设置的内容可能缺失。",
        ),
        what=Text(
            "The session wrote an error message before Python started, and the status of `activate` is 0 all the same.\nOlder versions of `module` end with 0 when a module does not exist. And the text goes on after a command that failed in its middle: join its commands by `&&`."
        ),
        do=Text(
            "Read what it printed: `module` tells of missing modules and still ends with 0",
            "看它打印了什么：`module` 找不到模块时照样返回 0",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: activate: join the commands by &&, and mend the one that fails",
                    "inventory，节点 {node}：activate: 用 && 连接各条命令，并修复失败的那条",
                )
            ),
        },
    ),
    "CC-PY-015": Entry(
        "warning",
        Text("the installed packages differ", "各节点安装的包不同"),
        why=Text(
            "One node then fails with an ImportError that the others lack, or computes something slightly different.",
            "某个节点会出现其他节点没有的 ImportError，或者计算结果略有不同。",
        ),
        what=Text(
            "The interpreters of the nodes do not find the same packages in the same versions.\nNames and versions of all that pip or the distribution installed for this Python are compared, and the odd node's differences named; `check --json` has every node's list. torch and what comes with it is compared by checks of its own. Make the environments from one lock file."
        ),
        do=Text(
            "Install the versions that most nodes have, or name one shared environment",
            "装成多数节点的版本，或者共用一个环境",
        ),
        cases={
            "": Case(
                fix=Text(
                    "{command} > lock.txt, and install that on the others",
                    "{command} > lock.txt，并在其他节点上按它安装",
                )
            ),
        },
    ),
    "CC-PY-016": Entry(
        "warning",
        Text("the C libraries differ", "各节点的 C 库不同"),
        why=Text(
            "Compiled packages that work on one node may not load on another.",
            "在一个节点上能用的编译包，在另一个节点上可能无法加载。",
        ),
        what=Text(
            'The nodes have different versions of glibc, as different distributions or releases of one bring them.\nWheels that were built for the older one work on all; what you compile on the newer one fails on the older with "version `GLIBC_2.xx\' not found". Build on the node with the oldest.'
        ),
        do=Text(
            "Use one system release, or an environment that brings its own libraries (conda)",
            "统一系统版本，或者用自带库的环境（conda）",
        ),
        cases={
            "": Case(
                fix=Text(
                    "build extensions on the node with the oldest glibc; wheels from an index need nothing",
                    "在 glibc 最旧的节点上编译扩展；从软件源下载的 wheel 不受影响",
                )
            ),
        },
    ),
    "CC-PY-017": Entry(
        "warning",
        Text("the C library is old for this torch", "C 库版本太旧，可能不支持这个 torch"),
        why=Text(
            "Wheels of torch since 2.6 need glibc 2.28: importing one fails, or the torch there is a build of its own.",
            "torch 2.6 以后的 wheel 需要 glibc 2.28：导入会失败，除非该 torch 是自行编译的。",
        ),
        what=Text(
            "PyTorch's own wheels have been manylinux_2_28 since 2.6; older systems, such as CentOS 7, cannot load them.\nThe import ends with \"version `GLIBC_2.28' not found\". Use conda-forge's build, a container, or a newer system."
        ),
        do=Text("A newer system, or a torch before 2.6", "换新系统，或者用 2.6 以前的 torch"),
        cases={
            "": Case(
                fix=Text(
                    "conda install -c conda-forge pytorch, or a torch before 2.6, or a newer system",
                    "conda install -c conda-forge pytorch，或者用 2.6 之前的 torch，或者换更新的系统",
                )
            ),
        },
    ),
    "CC-PY-020": Entry(
        "warning",
        Text("a file hides a module of Python or torch", "有文件挡住了 Python 或 torch 的模块"),
        why=Text(
            "`import` finds the file beside the script first: ImportError, often deep within torch.",
            "`import` 会先找到脚本旁边的文件：报 ImportError，常常发生在 torch 内部。",
        ),
        what=Text(
            "Beside the job's script lies a file or a package with the name of a module that torch needs.\nPython looks in the script's own directory first. A random.py or types.py there, or a directory torch with Python files, is what everybody imports then: `partially initialized module ... (most likely due to a circular import)`."
        ),
        do=Text(
            "Rename the file that is named, such as `random.py` or `torch/`",
            "给报错指出的文件改名，例如 `random.py`、`torch/`",
        ),
        cases={
            "": Case(fix=Text("rename {files}: {names}", "重命名 {files}：{names}")),
        },
    ),
    "CC-TORCH-001": Entry(
        "error",
        Text("torch is not installed", "没装 torch"),
        why=Text(
            "torchrun is part of torch: without it nothing can start on this node.",
            "torchrun 是 torch 的一部分：没有它，该节点上什么都无法启动。",
        ),
        what=Text(
            "The interpreter named by `python:` finds no torch.\nOften torch is installed, but for another interpreter: in a conda environment or a virtual environment that only a login shell activates. Then name that environment's python, or write what activates it as `activate:`. A job with `launcher: command` may have a Python of its own: no node needs torch here then."
        ),
        do=Text(
            "`python:` of the environment that has torch, or the `pip install` that is shown",
            "`python:` 指到装了 torch 的环境，或者执行给出的 `pip install`",
        ),
        cases={
            "": Case(fix=Text("$ {command}")),
            "index": Case(
                fix=Text(
                    "$ {command}  # with --index-url: PyTorch's index",
                    "$ {command}  # 加上 --index-url，指向 PyTorch 的包索引",
                )
            ),
        },
        texts=("No module named 'torch'",),
    ),
    "CC-TORCH-002": Entry(
        "error",
        Text("the torch versions differ", "各节点 torch 版本不同"),
        why=Text(
            "Nodes with different torch hang or fail in the first collective, with errors that do not name the cause.",
            "torch 版本不同的节点会在第一次集合通信时卡住或失败，报错里看不出原因。",
        ),
        what=Text(
            "All nodes must have exactly the same torch, its local tag included.\n2.7.1+cu126 and 2.7.1+cpu are different programs: the second has neither NCCL nor CUDA. Between releases the store protocol, the order of collectives and the NCCL inside change without notice."
        ),
        do=Text(
            "On the node that is named install the version of the others, as shown",
            "在报错指出的节点上，按提示安装与其他节点相同的版本",
        ),
        cases={
            "": Case(fix=Text("{commands}")),
            "any": Case(
                fix=Text(
                    "choose one version, and install it on all of them from one lock file",
                    "选定一个版本，用同一个 lock 文件安装到所有节点",
                )
            ),
        },
    ),
    "CC-TORCH-003": Entry(
        "error",
        Text("torch was built for different CUDA versions", "各节点的 torch 是为不同 CUDA 编译的"),
        why=Text(
            "Different CUDA runtimes bring different NCCL and kernels, so nodes disagree in collectives or results.",
            "CUDA 运行时不同，NCCL 和 kernel 也不同，各节点的集合通信或结果会不一致。",
        ),
        what=Text(
            "The torch version is the same everywhere, but it was built for different CUDA (or ROCm) versions.\nThis happens with builds of one's own, where the version carries no local tag."
        ),
        do=Text(
            "Install the same wheel (`+cu126` and so on) everywhere",
            "各节点装同一种 wheel（例如都是 `+cu126`）",
        ),
        cases={
            "": Case(
                fix=Text(
                    "install torch for {target} there, as on the others",
                    "安装 {target} 的 torch，与其他节点一致",
                )
            ),
            "any": Case(
                fix=Text(
                    "install the same build of torch there, as on the others",
                    "安装同一个构建的 torch，与其他节点一致",
                )
            ),
        },
    ),
    "CC-TORCH-004": Entry(
        "error",
        Text("the NCCL versions differ", "NCCL 版本不同"),
        why=Text(
            "NCCL refuses to work with another version of itself: `invalid usage`, and only NCCL_DEBUG says why.",
            "NCCL 拒绝与其他版本的 NCCL 一起工作：`invalid usage`，只有 NCCL_DEBUG 会说明原因。",
        ),
        what=Text(
            "All nodes must load exactly the same NCCL.\nThe version was asked of the library itself, which is loaded for a moment without a GPU, because package metadata can lie: an upgrade of another package, LD_PRELOAD or LD_LIBRARY_PATH change what is loaded."
        ),
        do=Text(
            "Install the same `nvidia-nccl` package, as shown; look for LD_LIBRARY_PATH and LD_PRELOAD",
            "照提示装相同的 `nvidia-nccl`；看看有没有 LD_LIBRARY_PATH、LD_PRELOAD",
        ),
        cases={
            "": Case(fix=Text("{commands}")),
        },
    ),
    "CC-TORCH-005": Entry(
        "error",
        Text("torch is too old", "torch 太旧"),
        why=Text(
            "clusterctl's launch needs torch 2.2 or later.", "clusterctl 启动需要 torch 2.2 或更新的版本。"
        ),
        what=Text(
            "The torch on this node is older than 2.2, the oldest whose torchrun behaves as a launch expects."
        ),
        do=Text("Install torch 2.2 or later", "装 2.2 以上的 torch"),
        cases={
            "": Case(fix=Text("$ {command}")),
        },
    ),
    "CC-TORCH-006": Entry(
        "error",
        Text("torch has no CUDA", "torch 不带 CUDA"),
        why=Text(
            "The node has GPUs and its torch has neither CUDA nor NCCL to use them with.",
            "节点有 GPU，但它的 torch 没有可用的 CUDA 或 NCCL。",
        ),
        what=Text(
            'This torch was built without CUDA or ROCm.\nWith `backend: nccl` it fails with "Distributed package doesn\'t have NCCL built in", with `nproc_per_node: gpu` with "Cuda is not available". Install a build for your CUDA, or train on CPUs with `backend: gloo` and `nproc_per_node: cpu` or a number. The simulated GPUs of `lab up --gpus` compute nothing with any torch: they count only for a job that asks for GPUs.'
        ),
        do=Text(
            "Install the CUDA build that is shown, or train on CPUs with `backend: gloo`",
            "照提示装 CUDA 版，或者用 `backend: gloo` 在 CPU 上训练",
        ),
        cases={
            "simulated": Case(
                fix=Text(
                    "job: backend: gloo, nproc_per_node: 1, no gpus:  # no torch can compute on a simulated GPU",
                    "job: backend: gloo, nproc_per_node: 1，去掉 gpus:  # 模拟的 GPU 上不能用 torch 计算",
                )
            ),
            "": Case(
                fix=Text(
                    "$ {command}  # with --index-url: PyTorch's index",
                    "$ {command}  # 加上 --index-url，指向 PyTorch 的包索引",
                )
            ),
        },
    ),
    "CC-TORCH-007": Entry(
        "warning",
        Text("torch is half upgraded", "torch 只升级了一半"),
        why=Text(
            "The package's metadata and the files disagree, so an installation was interrupted or mixed.",
            "包的元数据与文件不一致，说明安装被中断或混装。",
        ),
        what=Text(
            "`pip` believes in one version of torch and the files are of another.\nA second torch elsewhere on the path (in ~/.local, or by PYTHONPATH) also looks like this. Install again."
        ),
        do=Text("`pip install --force-reinstall`, as shown", "照提示 `pip install --force-reinstall`"),
        cases={
            "": Case(fix=Text("$ {command}")),
        },
    ),
    "CC-TORCH-008": Entry(
        "warning",
        Text("the NCCL that loads is not the one installed", "实际加载的 NCCL 不是装的那个"),
        why=Text(
            "Versions then differ between nodes although the packages agree.",
            "这样即使包相同，各节点的版本也会不同。",
        ),
        what=Text(
            "The library says another version than its package, or LD_PRELOAD brings in a library of its own."
        ),
        do=Text(
            "Find what brings it: LD_LIBRARY_PATH, LD_PRELOAD, or a system's libnccl",
            "找出它从哪里来：LD_LIBRARY_PATH、LD_PRELOAD，或者系统里的 libnccl",
        ),
        cases={
            "preload": Case(
                fix=Text(
                    "leave LD_PRELOAD out of `activate` and the shell's files, or set it on all nodes",
                    "从 `activate` 和 shell 的启动文件里去掉 LD_PRELOAD，或者在所有节点上都设置",
                )
            ),
            "": Case(fix=Text("$ {command}")),
        },
    ),
    "CC-TORCH-009": Entry(
        "warning",
        Text("the cuDNN versions differ", "cuDNN 版本不同"),
        why=Text(
            "Nodes may choose different algorithms and drift apart in speed and in the last digits.",
            "各节点可能选择不同的算法，速度和末位结果会出现差异。",
        ),
        what=Text("The nodes have the same torch but different cuDNN packages."),
        do=Text("Install the same `nvidia-cudnn` package everywhere", "各节点装相同的 `nvidia-cudnn`"),
        cases={
            "": Case(
                fix=Text(
                    "install cuDNN {version} with pip there, as on the others",
                    "用 pip 安装 cuDNN {version}，与其他节点一致",
                )
            ),
            "any": Case(
                fix=Text(
                    "install one cuDNN with pip there, as on the others",
                    "用 pip 安装同一个 cuDNN，与其他节点一致",
                )
            ),
        },
    ),
    "CC-TORCH-010": Entry(
        "warning",
        Text("another NCCL lies in the way", "路径上还有另一个 NCCL"),
        why=Text(
            "Whether it or torch's own is loaded depends on how torch and its companions were built.",
            "加载的是它还是 torch 自带的，取决于 torch 及其配套包的编译方式。",
        ),
        what=Text(
            "LD_LIBRARY_PATH or VLLM_NCCL_SO_PATH leads to an NCCL of another version than the one that torch brings.\ntorch's wheels find their own first; builds of conda or of your own, and vLLM, take the one that the variable names. `NCCL_DEBUG=VERSION` says at a run's start which it was. Leave the variable out, or make the versions equal."
        ),
        do=Text(
            "Remove one of the two, or take it out of LD_LIBRARY_PATH",
            "两个里去掉一个，或者从 LD_LIBRARY_PATH 里去掉",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: activate: unset {names}, or make it name torch's own NCCL",
                    "inventory，节点 {node}：activate: unset {names}，或者让它指向 torch 自带的 NCCL",
                )
            ),
        },
    ),
    "CC-SETUP-001": Entry(
        "error",
        Text(
            "a step of `setup` failed on a node; its last lines are shown, and what to type there to see it again",
            "某个节点上 `setup` 的一步失败；会列出最后几行输出和在节点上重现的命令",
        ),
        do=Text(
            "Its last lines say why; `setup.log` in the run's directory has all of it",
            "最后几行写了原因；全部输出在任务目录的 `setup.log` 里",
        ),
        cases={
            "again": Case(
                Text("{message}"), Text("to see it there again: {command}", "在节点上重现：{command}")
            ),
            "log": Case(
                Text("{message}"), Text("all it said is in {log} of the run", "完整输出在该 run 的 {log}")
            ),
        },
    ),
    "CC-SETUP-002": Entry(
        "error",
        Text("`setup` took longer on a node than its `time_limit`", "`setup` 超过了它的 `time_limit`"),
        do=Text(
            "More `setup.time_limit`; a download that waits for a network that is not there: [a wheelhouse](without-internet.md)",
            "加大 `setup.time_limit`；节点没有外网时下载会一直等：用[离线 wheel](without-internet.md)",
        ),
        cases={
            "reported": Case(
                Text("{message}"),
                Text(
                    "more time: `setup.time_limit`; or does a download wait for a network that is not there?",
                    "调大 `setup.time_limit`；或者检查是不是在无网络的节点上下载",
                ),
            ),
        },
    ),
    "CC-SETUP-003": Entry(
        "error",
        Text(
            "a file or folder that `setup` names is not beside the job, or its wheelhouse holds no wheels",
            "`setup` 里写的文件不在作业文件所在的目录，或者 wheel 目录是空的",
        ),
        do=Text(
            "Paths in `setup` are relative to the job file; `pip download -r requirements.txt -d wheels` fills a wheelhouse",
            "`setup` 里的路径相对于作业文件；`pip download -r requirements.txt -d wheels` 准备 wheel",
        ),
        cases={
            "wheels": Case(
                Text(
                    "setup.wheelhouse: no wheels in {wheelhouse}",
                    "setup.wheelhouse：{wheelhouse} 里没有 wheel",
                ),
                Text(
                    "{command}; for other nodes than this machine add --platform",
                    "{command}；节点与本机平台不同时加 --platform",
                ),
            ),
            "": Case(
                Text("setup: {path}: {reason}", "setup：{path}：{reason}"),
                Text("paths in `setup` are relative to the job file", "`setup` 里的路径相对于作业文件"),
            ),
            "not-sent": Case(
                Text(
                    "setup: {path} installs from {name}, which is not sent",
                    "setup：{path} 从 {name} 安装，而它没有发送",
                ),
                Text("files: [{name}]"),
            ),
            "outside": Case(
                Text(
                    "setup: {path} leads to {name}, which is not beside the job",
                    "setup：{path} 引用了 {name}，它不在作业文件所在目录下",
                ),
                Text("copy it there", "把它复制过去"),
            ),
            "no-file": Case(
                Text("setup: {path}: a link, or no file", "setup：{path}：是链接，或者不是文件"),
                Text(
                    "copy it there; only a folder that is named may be a link",
                    "把它复制过去；只有直接写出的目录可以是链接",
                ),
            ),
        },
    ),
    "CC-SETUP-004": Entry(
        "error",
        Text(
            "a node lacks a program that `setup` needs: uv, or one of micromamba, mamba and conda",
            "节点上缺少 `setup` 需要的程序：uv，或者 micromamba、mamba、conda 之一",
        ),
        do=Text(
            "Install it on the node, or put its directory on PATH by `activate`",
            "在节点上装好，或者用 `activate` 把它的目录加进 PATH",
        ),
        cases={
            "reported": Case(
                Text("{message}"),
                Text(
                    "install it on the node, or put its directory on PATH by `activate`",
                    "在节点上安装它，或者用 `activate` 把它的目录加进 PATH",
                ),
            ),
        },
    ),
    "CC-SETUP-005": Entry(
        "error",
        Text(
            "a command of `before` failed on a node, or took longer than its `time_limit`",
            "节点上 `before` 的命令失败，或者超过了它的 `time_limit`",
        ),
        do=Text(
            "Its last lines say why; `before.log` of the attempt has all of it",
            "最后几行写了原因；全部输出在这次尝试的 `before.log` 里",
        ),
    ),
    "CC-SETUP-006": Entry(
        "error",
        Text("the nodes' environments hold different versions of torch", "各节点环境里的 torch 版本不同"),
        do=Text("Pin torch in the lock file", "在锁文件里写死 torch 的版本"),
        cases={
            "": Case(
                Text(
                    "the environments that `setup` made hold different versions of torch",
                    "`setup` 创建的各环境里 torch 版本不同",
                ),
                Text(
                    "pin torch in the lock file, or give the nodes the same one",
                    "在 lock 文件里固定 torch 的版本，或者让各节点使用同一个文件",
                ),
            ),
        },
    ),
    "CC-SETUP-010": Entry(
        "info",
        Text("`setup` has not made its environment yet", "`setup` 的环境还没有做"),
        why=Text(
            "Which torch and which packages the job will have is known when the first launch has made it.",
            "第一次启动创建环境之后，才能知道作业使用的 torch 和包。",
        ),
        what=Text(
            "The job has a `setup`, and this node has no environment of that content: the launch will make it.\nUntil then nothing is said of torch, NCCL and packages: those of the node's own Python do not count. When it is there, `check` looks into it. A lock file that has changed means an environment that is not there yet."
        ),
        do=Text("Nothing: the launch makes it", "不用管：启动时会做"),
        cases={
            "": Case(fix=Text("clusterctl launch makes it", "clusterctl launch 会创建它")),
        },
    ),
}
