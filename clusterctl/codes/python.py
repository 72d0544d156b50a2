"""Python, torch, environments: CC-PY, CC-TORCH, CC-SETUP."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

NO_PYTHON = Text(
    "clusterctl runs everything on a node with the configured Python; nothing else has to be installed.",
    "节点上的所有操作都由配置的 Python 完成，不需要安装其他软件。",
)

SET_PYTHON = Text(
    "set `python` in {python_source} to the absolute path of the node's interpreter (3.8 or later)",
    "在 {python_source} 里把 `python` 设为节点上解释器的绝对路径（3.8 或更高版本）",
)
NO_EXIT_IN_SHELL_FILES = Text(
    "run `{command}` on the node and read its output, and look for `exit` in the login shell's startup files (.bashrc, .profile, .zshenv, config.fish)",
    "在节点上执行 `{command}` 并查看输出，再检查登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里有没有 `exit`",
)

ENTRIES: Mapping[str, Entry] = {
    "CC-PY-001": Entry(
        "error",
        Text("the Python interpreter was not found", "找不到 Python 解释器"),
        why=NO_PYTHON,
        what=Text(
            "SSH runs a non-login shell: what .bashrc or conda add to PATH is not available. Set the absolute path as `python:`, or set `activate:` to the command that makes it available.",
            "SSH 运行的是非登录 shell：.bashrc 或 conda 添加到 PATH 的内容不生效。用 `python:` 写绝对路径，或者用 `activate:` 写使其可用的命令。",
        ),
        do=Text(
            "Set `python:` to the full path; `clusterctl exec -- 'ls -d /opt/*/bin/python ~/venvs/*/bin/python'` lists candidates",
            "把 `python:` 设为完整路径；用 `clusterctl exec -- 'ls -d /opt/*/bin/python ~/venvs/*/bin/python'` 列出可选的解释器",
        ),
        cases={
            "": Case(
                Text("{python} was not found", "找不到 {python}"),
                SET_PYTHON,
            ),
            "not-run": Case(
                Text("{python} cannot be run", "{python} 无法运行"),
                SET_PYTHON,
            ),
        },
    ),
    "CC-PY-002": Entry(
        "error",
        Text("Python is too old", "Python 版本过低"),
        why=NO_PYTHON,
        what=Text(
            "clusterctl needs Python 3.8 or later on a node, the same one that runs torch. Set it as `python:`.",
            "节点上需要 Python 3.8 或更高版本，并且与运行 torch 的是同一个。用 `python:` 指定。",
        ),
        do=Text("Set `python:` to Python 3.8 or later", "把 `python:` 设为 Python 3.8 或更高版本"),
    ),
    "CC-PY-003": Entry(
        "error",
        Text("Python exited before it responded", "Python 未返回结果就退出"),
        why=NO_PYTHON,
        what=Text(
            "With exit status 0 the cause is nearly always an `exit` or `exec` in a startup file of the login shell, such as .bashrc. Otherwise the interpreter starts and exits at once: a broken installation, a missing library, or a wrapper script that does not pass on its standard input.",
            "退出状态为 0 时，原因几乎总是登录 shell 的启动文件（例如 .bashrc）里的 `exit` 或 `exec`。否则是解释器启动后立即退出：安装损坏、缺少库，或者包装脚本没有传递标准输入。",
        ),
        do=Text(
            "Status 0: an `exit` or `exec` in .bashrc. Otherwise run `activate` and `python` by hand on the node; `activate` must not `exit`. For a missing shared library set LD_LIBRARY_PATH in `activate`",
            "状态为 0：.bashrc 里有 `exit` 或 `exec`。否则在节点上手工执行 `activate` 和 `python`；`activate` 里不能有 `exit`。缺少共享库时，在 `activate` 里设置 LD_LIBRARY_PATH",
        ),
        cases={
            "activate": Case(
                Text(
                    "`activate` ended the shell with status {status}, so {python} was never started",
                    "`activate` 以状态 {status} 结束了 shell，{python} 没有启动",
                ),
                Text(
                    "remove `exit` from `activate` in the inventory or job, and from the files that it sources: it may only prepare the shell",
                    "从 inventory 或作业的 `activate` 以及它 source 的文件中删除 `exit`：`activate` 只能用于准备 shell 环境",
                ),
            ),
            "library": Case(
                Text(
                    "{python} exists but cannot load the shared library {library}",
                    "{python} 存在，但无法加载共享库 {library}",
                ),
                Text(
                    "export LD_LIBRARY_PATH with the directory of that library in `activate`, or set another `python`",
                    "在 `activate` 里 export LD_LIBRARY_PATH，使其包含该库所在的目录；或者换一个 `python`",
                ),
            ),
            "traceback": Case(
                Text("{python} started and failed at once", "{python} 启动后立即失败"),
                Text(
                    "a file on the node replaces a module of Python: check PYTHONPATH, and the path in the last lines shown",
                    "节点上有文件与 Python 模块同名：检查 PYTHONPATH 和最后几行里的路径",
                ),
            ),
            "shell-ended": Case(
                Text(
                    "no interpreter started: the login shell exited with status 0 before {python} responded",
                    "解释器没有启动：登录 shell 以状态 0 退出，{python} 尚未返回结果",
                ),
                Text(
                    "look for `exit` and `exec` in the login shell's startup files (.bashrc, .profile, .zshenv, config.fish): a non-interactive shell must reach their end",
                    "在登录 shell 的启动文件（.bashrc、.profile、.zshenv、config.fish）里查找 `exit` 和 `exec`：非交互 shell 必须能执行到文件末尾",
                ),
            ),
            "": Case(
                Text(
                    "no interpreter started: the login shell or {python} {status}",
                    "解释器没有启动：登录 shell 或 {python} {status}",
                ),
                NO_EXIT_IN_SHELL_FILES,
            ),
            "activated": Case(
                Text(
                    "no interpreter started: the login shell, `activate` or {python} {status}",
                    "解释器没有启动：登录 shell、`activate` 或 {python} {status}",
                ),
                NO_EXIT_IN_SHELL_FILES,
            ),
        },
    ),
    "CC-PY-004": Entry(
        "error",
        Text("`activate` hangs", "`activate` 卡住"),
        why=NO_PYTHON,
        what=Text(
            "The shell line `activate:` of the inventory or the job did not finish, so Python was not started. It has no terminal and no input: a command in it that prompts, waits for a network mount or does not exit blocks it.",
            "inventory 或作业的 `activate:` 没有执行完，因此 Python 没有启动。它没有终端，也没有输入：其中要求输入、等待网络挂载或不退出的命令会使它卡住。",
        ),
        do=Text(
            "A command in `activate` waits for input or for a file system that does not respond: remove lines one by one to find it",
            "`activate` 里有命令在等待输入，或者在等待无响应的文件系统：逐行删减来定位",
        ),
        cases={
            "": Case(
                Text(
                    "`activate` did not finish within {limit:g} s: {activate}",
                    "`activate` 在 {limit:g} 秒内没有执行完：{activate}",
                ),
                Text(
                    "use `activate` only to prepare the shell: no command in it may wait, prompt, or keep running; run it on the node by hand",
                    "`activate` 只用于准备 shell 环境：其中的命令不能等待、要求输入或持续运行；在节点上手工执行它",
                ),
            ),
        },
    ),
    "CC-PY-010": Entry(
        "error",
        Text("Python versions differ", "各节点的 Python 版本不同"),
        why=Text(
            "Object collectives send pickles between nodes, and compiled packages differ between Python versions.",
            "对象集合通信在节点之间传递 pickle 数据，而编译的包因 Python 版本而异。",
        ),
        what=Text(
            "All nodes must run the same X.Y version of Python. torch wheels, compiled extensions and pickles work with one X.Y only. A difference in the third number is harmless. Set the interpreter with `python:`, per node if necessary.",
            "所有节点必须运行同一个 X.Y 版本的 Python。torch 的 wheel、编译的扩展和 pickle 只适用于一个 X.Y 版本。第三位不同没有影响。用 `python:` 指定解释器，必要时给各节点分别指定。",
        ),
        do=Text(
            "Use the same Python version on all nodes: change `python:` or `activate:` of the reported node",
            "所有节点使用同一版本的 Python：修改报告的节点的 `python:` 或 `activate:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: python: /path/to/{python}  # now {path}",
                    "inventory，节点 {node}：python: /path/to/{python}  # 当前为 {path}",
                )
            ),
        },
    ),
    "CC-PY-011": Entry(
        "warning",
        Text("`activate` failed", "`activate` 失败"),
        why=Text(
            "Python was started anyway, but what `activate` sets up may be missing.",
            "Python 仍然启动了，但 `activate` 要设置的内容可能缺失。",
        ),
        what=Text(
            "The shell line `activate:` of the inventory or the job returned a non-zero status. A file that it sources is missing, or a module or an environment has another name on this node. The status is that of its last command, so a harmless failure at the end also counts: in that case append `|| true` to the line.",
            "inventory 或作业的 `activate:` 返回了非零状态。它 source 的文件不存在，或者 module、环境在该节点上的名称不同。返回的是最后一条命令的状态，因此末尾无关紧要的失败也算在内：这种情况可以在末尾加 `|| true`。",
        ),
        do=Text(
            "Run the line by hand on that node; join commands with `&&`",
            "在该节点上手工执行这一行；多条命令用 `&&` 连接",
        ),
        cases={
            "": Case(fix=same("$ bash -c {line}")),
        },
    ),
    "CC-PY-012": Entry(
        "warning",
        Text("Python is outside the activated environment", "Python 不属于已激活的环境"),
        why=Text(
            "The job would use the packages of another Python than the one that `activate` prepares.",
            "作业使用的将是另一个 Python 的包，而不是 `activate` 准备的环境。",
        ),
        what=Text(
            "`activate` switches to a conda environment or venv, but `python:` is an interpreter outside of it. A bare name is searched on PATH after `activate`, so `python: python` uses the environment's own interpreter. An absolute path is used as it is: set the one in the environment, or remove `activate`. `python3` may be a different interpreter than `python` if the environment has only the latter.",
            "`activate` 切换到了某个 conda 环境或 venv，而 `python:` 指定的解释器不在该环境中。不带路径的名称在 `activate` 之后按 PATH 查找，因此 `python: python` 会使用该环境的解释器。绝对路径则原样使用：请改为环境中的路径，或者去掉 `activate`。如果环境中只有 `python`，`python3` 可能是另一个解释器。",
        ),
        do=Text(
            "Set `python: python`, or the path inside the environment, as shown",
            "设置 `python: python`，或者按提示写环境中的路径",
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
        Text("`activate` gives different results on the nodes", "`activate` 在各节点上的结果不同"),
        why=Text(
            "Code that is built or loaded with another compiler or CUDA on one node may fail there or compute differently.",
            "某个节点用不同的编译器或 CUDA 编译、加载的代码，可能在该节点上失败或结果不同。",
        ),
        what=Text(
            "After `activate` the nodes differ in the name of the active environment, the CUDA toolkit or the compiler. The toolkit is that of the nvcc on PATH, or of CUDA_HOME; the compiler is the first one found of cc, gcc and clang. torch's own CUDA is compared by another check; toolkit and compiler matter for extensions and torch.compile.",
            "执行 `activate` 之后，各节点的环境名、CUDA 工具包或编译器不同。工具包取 PATH 上的 nvcc 或 CUDA_HOME；编译器依次取 cc、gcc、clang 中最先找到的。torch 自带的 CUDA 由另一项检查比较；工具包和编译器影响扩展和 torch.compile。",
        ),
        do=Text("Load the same modules or environment on all nodes", "在所有节点上加载相同的 module 或环境"),
        cases={
            "": Case(
                fix=Text(
                    "make `activate` select the same environment, toolkit and compiler, with versions, on all nodes",
                    "让 `activate` 在所有节点上选择相同的环境、工具包和编译器，并写明版本",
                )
            ),
        },
    ),
    "CC-PY-014": Entry(
        "warning",
        Text("`activate` printed an error", "`activate` 输出了报错"),
        why=Text(
            "It returned status 0 but printed an error: what `activate` sets up may be missing.",
            "它返回状态 0，但输出了报错：`activate` 要设置的内容可能缺失。",
        ),
        what=Text(
            "An error message was printed before Python started, although the status of `activate` is 0. Older versions of `module` return 0 even if a module does not exist. A command that fails in the middle does not stop the rest either: join the commands with `&&`.",
            "Python 启动前输出了报错，而 `activate` 的返回状态是 0。旧版本的 `module` 在模块不存在时也返回 0。中间的命令失败后，后面的命令也会继续执行：请用 `&&` 连接各条命令。",
        ),
        do=Text(
            "Read what it printed: `module` reports missing modules but still returns 0",
            "查看它的输出：`module` 找不到模块时会报错，但仍返回 0",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: activate: join the commands with &&, and fix the one that fails",
                    "inventory，节点 {node}：activate: 用 && 连接各条命令，并修复失败的命令",
                )
            ),
        },
    ),
    "CC-PY-015": Entry(
        "warning",
        Text("installed packages differ", "各节点安装的包不同"),
        why=Text(
            "One node may fail with an ImportError that others do not have, or give slightly different results.",
            "某个节点可能出现其他节点没有的 ImportError，或者计算结果略有不同。",
        ),
        what=Text(
            "The interpreters of the nodes do not find the same packages in the same versions. Names and versions of all packages that pip or the distribution installed for this Python are compared, and the differences are listed; `check --json` has the full list of every node. Other checks compare torch and its dependencies. Build the environments from one lock file.",
            "各节点的解释器找到的包或版本不同。比较的是 pip 或发行版为该 Python 安装的所有包的名称和版本，并列出差异；`check --json` 包含每个节点的完整列表。torch 及其依赖由其他检查比较。请用同一个 lock 文件创建环境。",
        ),
        do=Text(
            "Install the versions that most nodes have, or use one shared environment",
            "安装多数节点使用的版本，或者使用同一个共享环境",
        ),
        cases={
            "": Case(
                fix=Text(
                    "{command} > lock.txt  # then install that on the other nodes",
                    "{command} > lock.txt  # 然后在其他节点上按它安装",
                )
            ),
        },
    ),
    "CC-PY-016": Entry(
        "warning",
        Text("C library versions differ", "各节点的 C 库版本不同"),
        why=Text(
            "Compiled packages that work on one node may not load on another.",
            "在一个节点上可用的编译包，在另一个节点上可能无法加载。",
        ),
        what=Text(
            'The nodes have different versions of glibc, because their distributions or releases differ. Wheels that were built for the older glibc work on all nodes; what you compile with the newer one fails on the older with "version `GLIBC_2.xx\' not found". Build on the node with the oldest glibc.',
            '各节点的发行版或版本不同，因此 glibc 版本不同。为较旧 glibc 编译的 wheel 在所有节点上可用；用较新 glibc 编译的程序在较旧的节点上会报错 "version `GLIBC_2.xx\' not found"。请在 glibc 最旧的节点上编译。',
        ),
        do=Text(
            "Use one system release, or an environment with its own libraries (conda)",
            "统一系统版本，或者使用自带库的环境（conda）",
        ),
        cases={
            "": Case(
                fix=Text(
                    "build extensions on the node with the oldest glibc; wheels from a package index are not affected",
                    "在 glibc 最旧的节点上编译扩展；从软件源下载的 wheel 不受影响",
                )
            ),
        },
    ),
    "CC-PY-017": Entry(
        "warning",
        Text("the C library is too old for this torch", "C 库版本过低，可能不支持这个 torch"),
        why=Text(
            "Wheels of torch 2.6 and later need glibc 2.28: the import fails unless this torch is a custom build.",
            "torch 2.6 及更高版本的 wheel 需要 glibc 2.28：除非该 torch 是自行编译的，否则导入会失败。",
        ),
        what=Text(
            "PyTorch's own wheels are manylinux_2_28 since 2.6; older systems, such as CentOS 7, cannot load them. The import fails with \"version `GLIBC_2.28' not found\". Use conda-forge's build, a container, or a newer system.",
            'PyTorch 官方的 wheel 从 2.6 起为 manylinux_2_28，CentOS 7 等旧系统无法加载，导入时报错 "version `GLIBC_2.28\' not found"。请使用 conda-forge 的构建、容器或更新的系统。',
        ),
        do=Text("Use a newer system, or a torch before 2.6", "使用更新的系统，或者 2.6 之前的 torch"),
        cases={
            "": Case(
                fix=Text(
                    "conda install -c conda-forge pytorch, or a torch before 2.6, or a newer system",
                    "conda install -c conda-forge pytorch，或者使用 2.6 之前的 torch，或者使用更新的系统",
                )
            ),
        },
    ),
    "CC-PY-018": Entry(
        "error",
        Text("no Ray on a node", "节点上没有 Ray"),
        why=Text(
            "`launcher: ray` starts Ray on every node with the job's interpreter.",
            "`launcher: ray` 用作业的解释器在每个节点上启动 Ray。",
        ),
        what=Text(
            "The interpreter of the node finds no package `ray`. Install it on the node, or let the job's `setup:` install it: then it is checked once the environment exists.",
            "节点的解释器找不到 `ray` 包。请在该节点上安装，或者由作业的 `setup:` 安装：这种情况在环境创建之后才检查。",
        ),
        do=Text("Install Ray on the node, or add it to `setup:`", "在节点上安装 Ray，或者写进 `setup:`"),
        cases={"": Case(fix=same("{commands}"))},
    ),
    "CC-PY-019": Entry(
        "error",
        Text("versions of Ray or of its Python differ", "各节点的 Ray 或 Python 版本不同"),
        why=Text(
            "A node whose version of Ray or Python differs from node 0's cannot join.",
            "Ray 或 Python 版本与 0 号节点不同的节点无法加入。",
        ),
        what=Text(
            "Ray compares its own version and all three numbers of Python's when a node joins, and refuses a difference. Use one environment on all nodes, as `setup:` makes it.",
            "节点加入时，Ray 比较自身版本和 Python 的三段版本号（例如 3.11.7），不同则拒绝加入。请在所有节点上使用同一个环境，例如由 `setup:` 创建的环境。",
        ),
        do=Text(
            "Install the same version of Ray, and use the same Python, on all nodes",
            "在所有节点上安装同一版本的 Ray，并使用同一版本的 Python",
        ),
        cases={
            "": Case(fix=same("{commands}")),
            "python": Case(
                fix=Text(
                    "use one version of Python on all nodes: `python:` or `setup:`",
                    "所有节点使用同一版本的 Python：`python:` 或 `setup:`",
                )
            ),
            "any": Case(
                fix=Text(
                    "install the same version of Ray on all nodes, best by the job's `setup:`",
                    "在所有节点上安装同一版本的 Ray，最好由作业的 `setup:` 安装",
                )
            ),
        },
    ),
    "CC-PY-020": Entry(
        "warning",
        Text("a file replaces a module of Python or torch", "有文件与 Python 或 torch 的模块同名"),
        why=Text(
            "`import` finds the file next to the script first: ImportError, often deep inside torch.",
            "`import` 会先找到脚本所在目录的文件：报 ImportError，常常发生在 torch 内部。",
        ),
        what=Text(
            "Next to the job's script is a file or a package with the name of a module that torch needs. Python searches the script's own directory first. A random.py or types.py in it, or a directory torch with Python files, is imported instead of the real module: `partially initialized module ... (most likely due to a circular import)`.",
            "作业脚本所在的目录中有文件或包与 torch 所需的模块同名。Python 先查找脚本所在的目录，因此其中的 random.py、types.py，或者含有 Python 文件的 torch 目录会代替真正的模块被导入：`partially initialized module ... (most likely due to a circular import)`。",
        ),
        do=Text(
            "Rename the reported file, such as `random.py` or `torch/`",
            "重命名报告的文件，例如 `random.py`、`torch/`",
        ),
        cases={
            "": Case(fix=Text("rename {files}: {names}", "重命名 {files}：{names}")),
        },
    ),
    "CC-TORCH-001": Entry(
        "error",
        Text("torch is not installed", "没有安装 torch"),
        why=Text(
            "torchrun is part of torch: without it no process can start on this node.",
            "torchrun 是 torch 的一部分：没有它，该节点上无法启动任何进程。",
        ),
        what=Text(
            "torch is missing in the interpreter set with `python:`. Often torch is installed for another interpreter: in a conda environment or a virtual environment that only a login shell activates. Then set that environment's python, or set `activate:` to the command that activates it. A job with `launcher: command` may use another Python; the nodes then need no torch here. The same holds for `launcher: python` with a `setup` that makes an environment without torch, as for JAX.",
            "`python:` 指定的解释器缺少 torch。常见情况是 torch 安装在另一个解释器中：只有登录 shell 才会激活的 conda 环境或虚拟环境。请指定该环境的 python，或者用 `activate:` 写激活它的命令。`launcher: command` 的作业可以使用其他 Python，此时节点的这个解释器不需要 torch。`launcher: python` 的作业如果由 `setup` 创建了没有 torch 的环境（例如 JAX），也不需要。",
        ),
        do=Text(
            "Set `python:` to the environment that has torch, or let `setup:` of the job make one; `clusterctl init` does both",
            "把 `python:` 设为装有 torch 的环境，或者由作业的 `setup:` 创建环境；`clusterctl init` 会写好这两项",
        ),
        cases={
            "": Case(fix=same("$ {command}")),
            "index": Case(
                fix=Text(
                    "$ {command}  # with --index-url: PyTorch's index",
                    "$ {command}  # 加上 --index-url，指向 PyTorch 的包索引",
                )
            ),
            "system": Case(
                fix=Text(
                    "{file}: `setup: {venv: requirements.txt}`, and `{requirement}` in requirements.txt; or `python:` of an environment with torch in the inventory",
                    "在 {file} 写 `setup: {venv: requirements.txt}`，在 requirements.txt 写 `{requirement}`；或者在 inventory 中用 `python:` 指定装有 torch 的环境",
                )
            ),
        },
        texts=("No module named 'torch'",),
    ),
    "CC-TORCH-002": Entry(
        "error",
        Text("torch versions differ", "各节点的 torch 版本不同"),
        why=Text(
            "Nodes with different torch versions hang or fail in the first collective, with errors that do not show the cause.",
            "torch 版本不同的节点会在第一次集合通信时卡住或失败，报错里看不出原因。",
        ),
        what=Text(
            "All nodes must have exactly the same torch version, including its local tag. 2.7.1+cu126 and 2.7.1+cpu are different builds: the second has neither NCCL nor CUDA. Between releases the store protocol, the order of collectives and the bundled NCCL can change without notice.",
            "所有节点的 torch 版本必须完全相同，包括本地标签。2.7.1+cu126 和 2.7.1+cpu 是不同的构建：后者没有 NCCL 和 CUDA。不同版本之间，store 协议、集合通信的顺序和内置的 NCCL 都可能变化。",
        ),
        do=Text(
            "On the reported node, install the version of the other nodes, as shown",
            "在报告的节点上，按提示安装与其他节点相同的版本",
        ),
        cases={
            "": Case(fix=same("{commands}")),
            "any": Case(
                fix=Text(
                    "choose one version, and install it on all of them from one lock file",
                    "选定一个版本，用同一个 lock 文件在所有节点上安装",
                )
            ),
        },
    ),
    "CC-TORCH-003": Entry(
        "error",
        Text("torch was built for different CUDA versions", "各节点的 torch 为不同的 CUDA 版本编译"),
        why=Text(
            "Different CUDA runtimes bring different NCCL and kernels, so collectives or results can differ between nodes.",
            "CUDA 运行时不同，NCCL 和 kernel 也不同，各节点的集合通信或结果可能不一致。",
        ),
        what=Text(
            "The torch version is the same on all nodes, but it was built for different CUDA (or ROCm) versions. This happens with custom builds, in which the version has no local tag.",
            "所有节点的 torch 版本相同，但为不同的 CUDA（或 ROCm）版本编译。自行编译的 torch 版本号不带本地标签时会出现这种情况。",
        ),
        do=Text(
            "Install the same wheel (such as `+cu126`) on all nodes",
            "在所有节点上安装相同的 wheel（例如 `+cu126`）",
        ),
        cases={
            "": Case(
                fix=Text(
                    "install torch for {target} there, as on the others",
                    "在该节点安装 {target} 的 torch，与其他节点一致",
                )
            ),
            "any": Case(
                fix=Text(
                    "install the same build of torch there, as on the others",
                    "在该节点安装相同构建的 torch，与其他节点一致",
                )
            ),
        },
    ),
    "CC-TORCH-004": Entry(
        "error",
        Text("NCCL versions differ", "各节点的 NCCL 版本不同"),
        why=Text(
            "NCCL does not work with another version of itself: `invalid usage`, and only NCCL_DEBUG shows the reason.",
            "不同版本的 NCCL 不能互通：报错为 `invalid usage`，只有设置 NCCL_DEBUG 才能看到原因。",
        ),
        what=Text(
            "All nodes must load exactly the same NCCL. The version is read from the library itself, which is loaded for a moment without a GPU, because package metadata can be wrong: an upgrade of another package, LD_PRELOAD or LD_LIBRARY_PATH can change what is loaded.",
            "所有节点必须加载完全相同的 NCCL。版本从库本身读取（不使用 GPU，短暂加载），因为包的元数据可能不准确：升级其他包、LD_PRELOAD 或 LD_LIBRARY_PATH 都会改变实际加载的库。",
        ),
        do=Text(
            "Install the same `nvidia-nccl` package, as shown; check LD_LIBRARY_PATH and LD_PRELOAD",
            "按提示安装相同的 `nvidia-nccl`；检查 LD_LIBRARY_PATH 和 LD_PRELOAD",
        ),
        cases={
            "": Case(fix=same("{commands}")),
        },
    ),
    "CC-TORCH-005": Entry(
        "error",
        Text("torch is too old", "torch 版本过低"),
        why=Text(
            "`clusterctl launch` needs torch 2.2 or later.", "`clusterctl launch` 需要 torch 2.2 或更高版本。"
        ),
        what=Text(
            "The torch on this node is older than 2.2, the oldest version with a torchrun that `launch` supports.",
            "该节点的 torch 低于 2.2，而 `launch` 支持的 torchrun 最低为 torch 2.2。",
        ),
        do=Text("Install torch 2.2 or later", "安装 torch 2.2 或更高版本"),
        cases={
            "": Case(fix=same("$ {command}")),
        },
    ),
    "CC-TORCH-006": Entry(
        "error",
        Text("torch has no CUDA", "torch 不带 CUDA"),
        why=Text(
            "The node has GPUs, but its torch has no CUDA or NCCL to use them.",
            "节点有 GPU，但它的 torch 没有 CUDA 或 NCCL，无法使用 GPU。",
        ),
        what=Text(
            'This torch was built without CUDA or ROCm. With `backend: nccl` it fails with "Distributed package doesn\'t have NCCL built in", with `nproc_per_node: gpu` with "Cuda is not available". Install a build for your CUDA, or train on CPUs with `backend: gloo` and `nproc_per_node: cpu` or a number. The simulated GPUs of `lab up --gpus` cannot compute with any torch: they only count for jobs that need GPUs.',
            '这个 torch 编译时没有 CUDA 或 ROCm。使用 `backend: nccl` 会报错 "Distributed package doesn\'t have NCCL built in"，使用 `nproc_per_node: gpu` 会报错 "Cuda is not available"。请安装与 CUDA 对应的构建，或者用 `backend: gloo` 和 `nproc_per_node: cpu`（或数字）在 CPU 上训练。`lab up --gpus` 的模拟 GPU 不能用任何 torch 计算，只用于需要 GPU 的作业的计数。',
        ),
        do=Text(
            "Install the CUDA build that is shown, or train on CPUs with `backend: gloo`",
            "按提示安装 CUDA 版，或者用 `backend: gloo` 在 CPU 上训练",
        ),
        cases={
            "simulated": Case(
                fix=Text(
                    "job: backend: gloo, nproc_per_node: 1, no gpus:  # no torch can compute on a simulated GPU",
                    "job: backend: gloo, nproc_per_node: 1，去掉 gpus:  # torch 不能在模拟的 GPU 上计算",
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
        Text("torch is only partly upgraded", "torch 只升级了一部分"),
        why=Text(
            "Package metadata and files do not match: an installation was interrupted or mixed.",
            "包的元数据与文件不一致：安装被中断，或者混装了不同版本。",
        ),
        what=Text(
            "pip reports one version of torch, but the files are of another. A second torch elsewhere on the path (in ~/.local, or through PYTHONPATH) has the same effect. Install torch again.",
            "pip 显示的 torch 版本与实际文件的版本不同。路径上有第二个 torch（在 ~/.local 中，或者通过 PYTHONPATH）时也会这样。请重新安装 torch。",
        ),
        do=Text(
            "Run `pip install --force-reinstall`, as shown", "按提示执行 `pip install --force-reinstall`"
        ),
        cases={
            "": Case(fix=same("$ {command}")),
        },
    ),
    "CC-TORCH-008": Entry(
        "warning",
        Text("another NCCL is loaded than the installed one", "实际加载的 NCCL 不是已安装的版本"),
        why=Text(
            "NCCL versions can then differ between nodes although the packages are the same.",
            "这时即使包相同，各节点的 NCCL 版本也可能不同。",
        ),
        what=Text(
            "The library reports another version than its package, or LD_PRELOAD loads another library.",
            "库报告的版本与包的版本不同，或者 LD_PRELOAD 加载了其他库。",
        ),
        do=Text(
            "Find where it comes from: LD_LIBRARY_PATH, LD_PRELOAD, or the system's libnccl",
            "找出它的来源：LD_LIBRARY_PATH、LD_PRELOAD，或者系统的 libnccl",
        ),
        cases={
            "preload": Case(
                fix=Text(
                    "remove LD_PRELOAD from `activate` and the shell's startup files, or set it on all nodes",
                    "从 `activate` 和 shell 的启动文件里删除 LD_PRELOAD，或者在所有节点上设置",
                )
            ),
            "": Case(fix=same("$ {command}")),
        },
    ),
    "CC-TORCH-009": Entry(
        "warning",
        Text("cuDNN versions differ", "各节点的 cuDNN 版本不同"),
        why=Text(
            "Nodes may choose different algorithms: speed and the last digits of results can differ.",
            "各节点可能选择不同的算法，速度和计算结果的末位会有差异。",
        ),
        what=Text(
            "The nodes have the same torch but different cuDNN packages.",
            "各节点的 torch 相同，但 cuDNN 包不同。",
        ),
        do=Text(
            "Install the same `nvidia-cudnn` package on all nodes", "在所有节点上安装相同的 `nvidia-cudnn`"
        ),
        cases={
            "": Case(
                fix=Text(
                    "install cuDNN {version} with pip there, as on the others",
                    "在该节点用 pip 安装 cuDNN {version}，与其他节点一致",
                )
            ),
            "any": Case(
                fix=Text(
                    "install the same cuDNN with pip there, as on the others",
                    "在该节点用 pip 安装相同的 cuDNN，与其他节点一致",
                )
            ),
        },
    ),
    "CC-TORCH-010": Entry(
        "warning",
        Text("the path contains another NCCL", "库路径上还有另一个 NCCL"),
        why=Text(
            "Which of the two is loaded depends on how torch and other packages were built.",
            "加载哪一个取决于 torch 及其他包的编译方式。",
        ),
        what=Text(
            "LD_LIBRARY_PATH or VLLM_NCCL_SO_PATH points to another version of NCCL than the one that torch brings. torch's wheels find their own first; conda builds, custom builds and vLLM use the one that the variable points to. `NCCL_DEBUG=VERSION` shows the version at the start of a run. Remove the variable, or install equal versions.",
            "LD_LIBRARY_PATH 或 VLLM_NCCL_SO_PATH 指向的 NCCL 与 torch 自带的版本不同。torch 的 wheel 先找到自带的；conda 构建、自行编译的 torch 和 vLLM 使用变量指向的。`NCCL_DEBUG=VERSION` 会在任务启动时显示版本。请删除该变量，或者使两者版本相同。",
        ),
        do=Text(
            "Remove one of the two, or remove it from LD_LIBRARY_PATH",
            "删除其中一个，或者从 LD_LIBRARY_PATH 里去掉",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: activate: unset {names}, or point it to torch's own NCCL",
                    "inventory，节点 {node}：activate: unset {names}，或者让它指向 torch 自带的 NCCL",
                )
            ),
        },
    ),
    "CC-SETUP-001": Entry(
        "error",
        Text(
            "a step of `setup` failed on a node; the last lines of its output and the command to repeat it are shown",
            "某个节点上 `setup` 的一步失败；会列出最后几行输出和在节点上重现的命令",
        ),
        do=Text(
            "Its last lines show the reason; the full output is in `setup.log` in the run's directory. Where the node has no internet, send the packages along: `--set setup.wheelhouse=wheels`, see [nodes without internet](../environments.md#nodes-without-internet)",
            "最后几行是原因；完整输出在任务目录的 `setup.log` 里。节点没有外网时，把包一起发送：`--set setup.wheelhouse=wheels`，见[没有外网的节点](../../en/environments.md#nodes-without-internet)",
        ),
        cases={
            "again": Case(
                same("{message}"),
                Text(
                    "correct what the last lines name; to repeat the step on the node: {command}",
                    "按最后几行的提示修正；在节点上单独重现这一步：{command}",
                ),
            ),
            "log": Case(
                same("{message}"), Text("the full output is in {log} of the run", "完整输出在该任务的 {log}")
            ),
            "offline": Case(
                same("{message}"),
                Text(
                    "the node reaches no package index; send the packages along (docs/en/environments.md):\npip download -r requirements.txt -d wheels\nclusterctl launch job.yaml --set setup.wheelhouse=wheels",
                    "该节点连不上软件源；把包一起发送（docs/zh/environments.md）：\npip download -r requirements.txt -d wheels\nclusterctl launch job.yaml --set setup.wheelhouse=wheels",
                ),
            ),
        },
    ),
    "CC-SETUP-002": Entry(
        "error",
        Text("`setup` exceeded its `time_limit` on a node", "节点上的 `setup` 超过了它的 `time_limit`"),
        do=Text(
            "Raise `setup.time_limit`; if a download waits for a network that the node does not have, use [a wheelhouse](../environments.md#nodes-without-internet)",
            "调大 `setup.time_limit`；如果节点没有外网，下载会一直等待，请使用[离线 wheel](../../en/environments.md#nodes-without-internet)",
        ),
        cases={
            "reported": Case(
                same("{message}"),
                Text(
                    "raise `setup.time_limit`, or check whether a download waits for a network that the node does not have",
                    "调大 `setup.time_limit`；或者检查是否在没有网络的节点上下载",
                ),
            ),
        },
    ),
    "CC-SETUP-003": Entry(
        "error",
        Text(
            "a file or folder in `setup` is not in the job file's directory, or its wheelhouse contains no wheels",
            "`setup` 里的文件或目录不在作业文件所在的目录，或者 wheel 目录是空的",
        ),
        do=Text(
            "Paths in `setup` are relative to the job file; `pip download -r requirements.txt -d wheels` fills a wheelhouse",
            "`setup` 里的路径相对于作业文件；用 `pip download -r requirements.txt -d wheels` 准备 wheel 目录",
        ),
        cases={
            "wheels": Case(
                Text(
                    "setup.wheelhouse: no wheels in {wheelhouse}",
                    "setup.wheelhouse：{wheelhouse} 里没有 wheel",
                ),
                Text(
                    "{command}; if the nodes have another platform than this machine, add --platform",
                    "{command}；如果节点与本机平台不同，加 --platform",
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
                same("files: [{name}]"),
            ),
            "outside": Case(
                Text(
                    "setup: {path} refers to {name}, which is outside the job file's directory",
                    "setup：{path} 引用了 {name}，它不在作业文件所在的目录",
                ),
                Text("copy it into the job file's directory", "把它复制到作业文件所在的目录"),
            ),
            "no-file": Case(
                Text("setup: {path}: a link, or not a file", "setup：{path}：是链接，或者不是文件"),
                Text(
                    "copy it into the job file's directory; only a folder that is listed itself may be a link",
                    "把它复制到作业文件所在的目录；只有直接列出的目录可以是链接",
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
            "Install it on the node, or add its directory to PATH in `activate`",
            "在节点上安装它，或者在 `activate` 里把它的目录加进 PATH",
        ),
        cases={
            "reported": Case(
                same("{message}"),
                Text(
                    "install it on the node, or add its directory to PATH in `activate`",
                    "在节点上安装它，或者在 `activate` 里把它的目录加进 PATH",
                ),
            ),
        },
    ),
    "CC-SETUP-005": Entry(
        "error",
        Text(
            "a command of `before` failed on a node, or exceeded its `time_limit`",
            "节点上 `before` 的命令失败，或者超过了它的 `time_limit`",
        ),
        do=Text(
            "Its last lines show the reason; the full output is in `before.log` of the attempt",
            "最后几行是原因；完整输出在该次尝试的 `before.log` 里",
        ),
    ),
    "CC-SETUP-006": Entry(
        "error",
        Text("the nodes' environments have different versions of torch", "各节点环境里的 torch 版本不同"),
        do=Text("Pin torch in the lock file", "在 lock 文件里固定 torch 的版本"),
        cases={
            "": Case(
                Text(
                    "the environments that `setup` made have different versions of torch",
                    "`setup` 创建的各环境里 torch 版本不同",
                ),
                Text(
                    "pin torch in the lock file, or use the same lock file for all nodes",
                    "在 lock 文件里固定 torch 的版本，或者所有节点使用同一个文件",
                ),
            ),
        },
    ),
    "CC-SETUP-010": Entry(
        "info",
        Text("the environment of `setup` does not exist yet", "`setup` 的环境尚未创建"),
        why=Text(
            "Which torch and packages the job will use is known only after the first launch has created the environment.",
            "首次启动创建环境之后，才能确定作业使用的 torch 和包。",
        ),
        what=Text(
            "The job has a `setup`, and this node has no environment with that content: `launch` will create it. Until then torch, NCCL and packages are not checked: those of the node's own Python do not matter. Once the environment exists, `check` examines it. A changed lock file means a new environment.",
            "作业有 `setup`，而该节点上还没有对应内容的环境：`launch` 会创建它。在此之前不检查 torch、NCCL 和其他包，因为作业不使用节点自身 Python 中的包。环境创建之后，`check` 会检查它。lock 文件变化后需要新的环境。",
        ),
        do=Text("Nothing to do: `launch` creates it", "无需处理：`launch` 会创建它"),
        cases={
            "": Case(fix=Text("clusterctl launch creates it", "clusterctl launch 会创建它")),
        },
    ),
}
