"""What a job runs: its interpreter, torch, its environment and its code: CC-PY, CC-TORCH, CC-SETUP, CC-CODE.

The code is read by `plans/launch/script.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

NO_PYTHON = (
    "clusterctl runs everything on a node with the configured Python; nothing else has to be installed."
)

SET_PYTHON = "set `python` in {python_source} to the absolute path of the node's interpreter (3.8 or later)"
NO_EXIT_IN_SHELL_FILES = "run `{command}` on the node and read its output, and look for `exit` in the login shell's startup files (.bashrc, .profile, .zshenv, config.fish)"

ENTRIES: Mapping[str, Entry] = {
    "CC-PY-001": Entry(
        "error",
        "the Python interpreter was not found",
        why=NO_PYTHON,
        what="SSH runs a non-login shell: what .bashrc or conda add to PATH is not available. Set the absolute path as `python:`, or set `activate:` to the command that makes it available.",
        do="Set `python:` to the full path; `clusterctl exec -- 'ls -d /opt/*/bin/python ~/venvs/*/bin/python'` lists candidates",
        cases={
            "": Case("{python} was not found", SET_PYTHON),
            "not-run": Case("{python} cannot be run", SET_PYTHON),
        },
    ),
    "CC-PY-002": Entry(
        "error",
        "Python is too old",
        why=NO_PYTHON,
        what="clusterctl needs Python 3.8 or later on a node, the same one that runs torch. Set it as `python:`.",
        do="Set `python:` to Python 3.8 or later",
    ),
    "CC-PY-003": Entry(
        "error",
        "Python exited before it responded",
        why=NO_PYTHON,
        what="With exit status 0 the cause is nearly always an `exit` or `exec` in a startup file of the login shell, such as .bashrc. Otherwise the interpreter starts and exits at once: a broken installation, a missing library, or a wrapper script that does not pass on its standard input.",
        do="Status 0: an `exit` or `exec` in .bashrc. Otherwise run `activate` and `python` by hand on the node; `activate` must not `exit`. For a missing shared library set LD_LIBRARY_PATH in `activate`",
        cases={
            "activate": Case(
                "`activate` ended the shell with status {status}, so {python} was never started",
                "remove `exit` from `activate` in the inventory or job, and from the files that it sources: it may only prepare the shell",
            ),
            "library": Case(
                "{python} exists but cannot load the shared library {library}",
                "export LD_LIBRARY_PATH with the directory of that library in `activate`, or set another `python`",
            ),
            "traceback": Case(
                "{python} started and failed at once",
                "a file on the node replaces a module of Python: check PYTHONPATH, and the path in the last lines shown",
            ),
            "shell-ended": Case(
                "no interpreter started: the login shell exited with status 0 before {python} responded",
                "look for `exit` and `exec` in the login shell's startup files (.bashrc, .profile, .zshenv, config.fish): a non-interactive shell must reach their end",
            ),
            "": Case("no interpreter started: the login shell or {python} {status}", NO_EXIT_IN_SHELL_FILES),
            "activated": Case(
                "no interpreter started: the login shell, `activate` or {python} {status}",
                NO_EXIT_IN_SHELL_FILES,
            ),
        },
    ),
    "CC-PY-004": Entry(
        "error",
        "`activate` hangs",
        why=NO_PYTHON,
        what="The shell line `activate:` of the inventory or the job did not finish, so Python was not started. It has no terminal and no input: a command in it that prompts, waits for a network mount or does not exit blocks it.",
        do="A command in `activate` waits for input or for a file system that does not respond: remove lines one by one to find it",
        cases={
            "": Case(
                "`activate` did not finish within {limit:g} s: {activate}",
                "use `activate` only to prepare the shell: no command in it may wait, prompt, or keep running; run it on the node by hand",
            ),
        },
    ),
    "CC-PY-010": Entry(
        "error",
        "Python versions differ",
        why="Object collectives send pickles between nodes, and compiled packages differ between Python versions.",
        what="All nodes must run the same X.Y version of Python. torch wheels, compiled extensions and pickles work with one X.Y only. A difference in the third number is harmless. Set the interpreter with `python:`, per node if necessary.",
        do="Use the same Python version on all nodes: change `python:` or `activate:` of the reported node",
        cases={
            "": Case(fix="inventory, node {node}: python: /path/to/{python}  # now {path}"),
        },
    ),
    "CC-PY-011": Entry(
        "warning",
        "`activate` failed",
        why="Python was started anyway, but what `activate` sets up may be missing.",
        what="The shell line `activate:` of the inventory or the job returned a non-zero status. A file that it sources is missing, or a module or an environment has another name on this node. The status is that of its last command, so a harmless failure at the end also counts: in that case append `|| true` to the line.",
        do="Run the line by hand on that node; join commands with `&&`",
        cases={
            "": Case(fix=Same("$ bash -c {line}")),
        },
    ),
    "CC-PY-012": Entry(
        "warning",
        "Python is outside the activated environment",
        why="The job would use the packages of another Python than the one that `activate` prepares.",
        what="`activate` switches to a conda environment or venv, but `python:` is an interpreter outside of it. A bare name is searched on PATH after `activate`, so `python: python` uses the environment's own interpreter. An absolute path is used as it is: set the one in the environment, or remove `activate`. `python3` may be a different interpreter than `python` if the environment has only the latter.",
        do="Set `python: python`, or the path inside the environment, as shown",
        cases={
            "": Case(fix="inventory, node {node}: python: {environment}/bin/python"),
        },
    ),
    "CC-PY-013": Entry(
        "warning",
        "`activate` gives different results on the nodes",
        why="Code that is built or loaded with another compiler or CUDA on one node may fail there or compute differently.",
        what="After `activate` the nodes differ in the name of the active environment, the CUDA toolkit or the compiler. The toolkit is that of the nvcc on PATH, or of CUDA_HOME; the compiler is the first one found of cc, gcc and clang. torch's own CUDA is compared by another check; toolkit and compiler matter for extensions and torch.compile.",
        do="Load the same modules or environment on all nodes",
        cases={
            "": Case(
                fix="make `activate` select the same environment, toolkit and compiler, with versions, on all nodes"
            ),
        },
    ),
    "CC-PY-014": Entry(
        "warning",
        "`activate` printed an error",
        why="It returned status 0 but printed an error: what `activate` sets up may be missing.",
        what="An error message was printed before Python started, although the status of `activate` is 0. Older versions of `module` return 0 even if a module does not exist. A command that fails in the middle does not stop the rest either: join the commands with `&&`.",
        do="Read what it printed: `module` reports missing modules but still returns 0",
        cases={
            "": Case(
                fix="inventory, node {node}: activate: join the commands with &&, and fix the one that fails"
            ),
        },
    ),
    "CC-PY-015": Entry(
        "warning",
        "installed packages differ",
        why="One node may fail with an ImportError that others do not have, or give slightly different results.",
        what="The interpreters of the nodes do not find the same packages in the same versions. Names and versions of all packages that pip or the distribution installed for this Python are compared, and the differences are listed; `check --json` has the full list of every node. Other checks compare torch and its dependencies. Build the environments from one lock file.",
        do="Install the versions that most nodes have, or use one shared environment",
        cases={
            "": Case(fix="{command} > lock.txt  # then install that on the other nodes"),
        },
    ),
    "CC-PY-016": Entry(
        "warning",
        "C library versions differ",
        why="Compiled packages that work on one node may not load on another.",
        what='The nodes have different versions of glibc, because their distributions or releases differ. Wheels that were built for the older glibc work on all nodes; what you compile with the newer one fails on the older with "version `GLIBC_2.xx\' not found". Build on the node with the oldest glibc.',
        do="Use one system release, or an environment with its own libraries (conda)",
        cases={
            "": Case(
                fix="build extensions on the node with the oldest glibc; wheels from a package index are not affected"
            ),
        },
    ),
    "CC-PY-017": Entry(
        "warning",
        "the C library is too old for this torch",
        why="Wheels of torch 2.6 and later need glibc 2.28: the import fails unless this torch is a custom build.",
        what="PyTorch's own wheels are manylinux_2_28 since 2.6; older systems, such as CentOS 7, cannot load them. The import fails with \"version `GLIBC_2.28' not found\". Use conda-forge's build, a container, or a newer system.",
        do="Use a newer system, or a torch before 2.6",
        cases={
            "": Case(fix="conda install -c conda-forge pytorch, or a torch before 2.6, or a newer system"),
        },
    ),
    "CC-PY-018": Entry(
        "error",
        "no Ray on a node",
        why="`launcher: ray` starts Ray on every node with the job's interpreter.",
        what="The interpreter of the node finds no package `ray`. Install it on the node, or let the job's `setup:` install it: then it is checked once the environment exists.",
        do="Install Ray on the node, or add it to `setup:`",
        cases={"": Case(fix=Same("{commands}"))},
    ),
    "CC-PY-019": Entry(
        "error",
        "versions of Ray or of its Python differ",
        why="A node whose version of Ray or Python differs from node 0's cannot join.",
        what="Ray compares its own version and all three numbers of Python's when a node joins, and refuses a difference. Use one environment on all nodes, as `setup:` makes it.",
        do="Install the same version of Ray, and use the same Python, on all nodes",
        cases={
            "": Case(fix=Same("{commands}")),
            "python": Case(fix="use one version of Python on all nodes: `python:` or `setup:`"),
            "any": Case(fix="install the same version of Ray on all nodes, best by the job's `setup:`"),
        },
    ),
    "CC-PY-020": Entry(
        "warning",
        "a file replaces a module of Python or torch",
        why="`import` finds the file next to the script first: ImportError, often deep inside torch.",
        what="Next to the job's script is a file or a package with the name of a module that torch needs. Python searches the script's own directory first. A random.py or types.py in it, or a directory torch with Python files, is imported instead of the real module: `partially initialized module ... (most likely due to a circular import)`.",
        do="Rename the reported file, such as `random.py` or `torch/`",
        cases={
            "": Case(fix="rename {files}: {names}"),
        },
    ),
    "CC-TORCH-001": Entry(
        "error",
        "torch is not installed",
        why="torchrun is part of torch: without it no process can start on this node.",
        what="torch is missing in the interpreter set with `python:`. Often torch is installed for another interpreter: in a conda environment or a virtual environment that only a login shell activates. Then set that environment's python, or set `activate:` to the command that activates it. A job with `launcher: command` may use another Python; the nodes then need no torch here. The same holds for `launcher: python` with a `setup` that makes an environment without torch, as for JAX.",
        do="Set `python:` to the environment that has torch, or let `setup:` of the job make one; `clusterctl init` does both",
        cases={
            "": Case(fix=Same("$ {command}")),
            "index": Case(fix="$ {command}  # with --index-url: PyTorch's index"),
            "system": Case(
                fix="{file}: `setup: {venv: requirements.txt}`, and `{requirement}` in requirements.txt; or `python:` of an environment with torch in the inventory"
            ),
        },
        texts=("No module named 'torch'",),
    ),
    "CC-TORCH-002": Entry(
        "error",
        "torch versions differ",
        why="Nodes with different torch versions hang or fail in the first collective, with errors that do not show the cause.",
        what="All nodes must have exactly the same torch version, including its local tag. 2.7.1+cu126 and 2.7.1+cpu are different builds: the second has neither NCCL nor CUDA. Between releases the store protocol, the order of collectives and the bundled NCCL can change without notice.",
        do="On the reported node, install the version of the other nodes, as shown",
        cases={
            "": Case(fix=Same("{commands}")),
            "any": Case(fix="choose one version, and install it on all of them from one lock file"),
        },
    ),
    "CC-TORCH-003": Entry(
        "error",
        "torch was built for different CUDA versions",
        why="Different CUDA runtimes bring different NCCL and kernels, so collectives or results can differ between nodes.",
        what="The torch version is the same on all nodes, but it was built for different CUDA (or ROCm) versions. This happens with custom builds, in which the version has no local tag.",
        do="Install the same wheel (such as `+cu126`) on all nodes",
        cases={
            "": Case(fix="install torch for {target} there, as on the others"),
            "any": Case(fix="install the same build of torch there, as on the others"),
        },
    ),
    "CC-TORCH-004": Entry(
        "error",
        "NCCL versions differ",
        why="NCCL does not work with another version of itself: `invalid usage`, and only NCCL_DEBUG shows the reason.",
        what="All nodes must load exactly the same NCCL. The version is read from the library itself, which is loaded for a moment without a GPU, because package metadata can be wrong: an upgrade of another package, LD_PRELOAD or LD_LIBRARY_PATH can change what is loaded.",
        do="Install the same `nvidia-nccl` package, as shown; check LD_LIBRARY_PATH and LD_PRELOAD",
        cases={
            "": Case(fix=Same("{commands}")),
        },
    ),
    "CC-TORCH-005": Entry(
        "error",
        "torch is too old",
        why="`clusterctl launch` needs torch 2.2 or later.",
        what="The torch on this node is older than 2.2, the oldest version with a torchrun that `launch` supports.",
        do="Install torch 2.2 or later",
        cases={
            "": Case(fix=Same("$ {command}")),
        },
    ),
    "CC-TORCH-006": Entry(
        "error",
        "torch has no CUDA",
        why="The node has GPUs, but its torch has no CUDA or NCCL to use them.",
        what='This torch was built without CUDA or ROCm. With `backend: nccl` it fails with "Distributed package doesn\'t have NCCL built in", with `nproc_per_node: gpu` with "Cuda is not available". Install a build for your CUDA, or train on CPUs with `backend: gloo` and `nproc_per_node: cpu` or a number. The simulated GPUs of `lab up --gpus` cannot compute with any torch: they only count for jobs that need GPUs.',
        do="Install the CUDA build that is shown, or train on CPUs with `backend: gloo`",
        cases={
            "simulated": Case(
                fix="job: backend: gloo, nproc_per_node: 1, no gpus:  # no torch can compute on a simulated GPU"
            ),
            "": Case(fix="$ {command}  # with --index-url: PyTorch's index"),
        },
    ),
    "CC-TORCH-007": Entry(
        "warning",
        "torch is only partly upgraded",
        why="Package metadata and files do not match: an installation was interrupted or mixed.",
        what="pip reports one version of torch, but the files are of another. A second torch elsewhere on the path (in ~/.local, or through PYTHONPATH) has the same effect. Install torch again.",
        do="Run `pip install --force-reinstall`, as shown",
        cases={
            "": Case(fix=Same("$ {command}")),
        },
    ),
    "CC-TORCH-008": Entry(
        "warning",
        "another NCCL is loaded than the installed one",
        why="NCCL versions can then differ between nodes although the packages are the same.",
        what="The library reports another version than its package, or LD_PRELOAD loads another library.",
        do="Find where it comes from: LD_LIBRARY_PATH, LD_PRELOAD, or the system's libnccl",
        cases={
            "preload": Case(
                fix="remove LD_PRELOAD from `activate` and the shell's startup files, or set it on all nodes"
            ),
            "": Case(fix=Same("$ {command}")),
        },
    ),
    "CC-TORCH-009": Entry(
        "warning",
        "cuDNN versions differ",
        why="Nodes may choose different algorithms: speed and the last digits of results can differ.",
        what="The nodes have the same torch but different cuDNN packages.",
        do="Install the same `nvidia-cudnn` package on all nodes",
        cases={
            "": Case(fix="install cuDNN {version} with pip there, as on the others"),
            "any": Case(fix="install the same cuDNN with pip there, as on the others"),
        },
    ),
    "CC-TORCH-010": Entry(
        "warning",
        "the path contains another NCCL",
        why="Which of the two is loaded depends on how torch and other packages were built.",
        what="LD_LIBRARY_PATH or VLLM_NCCL_SO_PATH points to another version of NCCL than the one that torch brings. torch's wheels find their own first; conda builds, custom builds and vLLM use the one that the variable points to. `NCCL_DEBUG=VERSION` shows the version at the start of a run. Remove the variable, or install equal versions.",
        do="Remove one of the two, or remove it from LD_LIBRARY_PATH",
        cases={
            "": Case(fix="inventory, node {node}: activate: unset {names}, or point it to torch's own NCCL"),
        },
    ),
    "CC-SETUP-001": Entry(
        "error",
        "a step of `setup` failed on a node; the last lines of its output and the command to repeat it are shown",
        do="Its last lines show the reason; the full output is in `setup.log` in the run's directory. Where the node has no internet, send the packages along: `--set setup.wheelhouse=wheels`, see [nodes without internet](../environments.md#nodes-without-internet)",
        cases={
            "again": Case(
                Same("{message}"),
                "correct what the last lines name; to repeat the step on the node: {command}",
            ),
            "log": Case(Same("{message}"), "the full output is in {log} of the run"),
            "offline": Case(
                Same("{message}"),
                "the node reaches no package index; send the packages along (docs/en/environments.md shows it also without torch):\npip download -r requirements.txt -d wheels\nclusterctl launch job.yaml --set setup.wheelhouse=wheels",
            ),
        },
    ),
    "CC-SETUP-002": Entry(
        "error",
        "`setup` exceeded its `time_limit` on a node",
        do="Raise `setup.time_limit`; if a download waits for a network that the node does not have, use [a wheelhouse](../environments.md#nodes-without-internet)",
        cases={
            "reported": Case(
                Same("{message}"),
                "raise `setup.time_limit`, or check whether a download waits for a network that the node does not have",
            ),
        },
    ),
    "CC-SETUP-003": Entry(
        "error",
        "a file or folder in `setup` is not in the job file's directory, or its wheelhouse contains no wheels",
        do="Paths in `setup` are relative to the job file; `pip download -r requirements.txt -d wheels` fills a wheelhouse",
        cases={
            "wheels": Case(
                "setup.wheelhouse: no wheels in {wheelhouse}",
                "{command}; if the nodes have another platform than this machine, add --platform",
            ),
            "": Case("setup: {path}: {reason}", "paths in `setup` are relative to the job file"),
            "not-sent": Case(
                "setup: {path} installs from {name}, which is not sent", Same("files: [{name}]")
            ),
            "outside": Case(
                "setup: {path} refers to {name}, which is outside the job file's directory",
                "copy it into the job file's directory",
            ),
            "no-file": Case(
                "setup: {path}: a link, or not a file",
                "copy it into the job file's directory; only a folder that is listed itself may be a link",
            ),
        },
    ),
    "CC-SETUP-004": Entry(
        "error",
        "a node lacks a program that `setup` needs: uv, or one of micromamba, mamba and conda",
        do="Install it on the node, or add its directory to PATH in `activate`",
        cases={
            "reported": Case(
                Same("{message}"), "install it on the node, or add its directory to PATH in `activate`"
            ),
        },
    ),
    "CC-SETUP-005": Entry(
        "error",
        "a command of `before` failed on a node, or exceeded its `time_limit`",
        do="Its last lines show the reason; the full output is in `before.log` of the attempt",
    ),
    "CC-SETUP-006": Entry(
        "error",
        "the nodes' environments have different versions of torch",
        do="Pin torch in the lock file",
        cases={
            "": Case(
                "the environments that `setup` made have different versions of torch",
                "pin torch in the lock file, or use the same lock file for all nodes",
            ),
        },
    ),
    "CC-SETUP-010": Entry(
        "info",
        "the environment of `setup` does not exist yet",
        why="Which torch and packages the job will use is known only after the first launch has created the environment.",
        what="The job has a `setup`, and this node has no environment with that content: `launch` will create it. Until then torch, NCCL and packages are not checked: those of the node's own Python do not matter. Once the environment exists, `check` examines it. A changed lock file means a new environment.",
        do="Nothing to do: `launch` creates it",
        cases={
            "": Case(fix="clusterctl launch creates it"),
        },
    ),
    "CC-CODE-001": Entry(
        "warning",
        "the script takes --local_rank, and the launcher does not pass it",
        why="torchrun passes the number as LOCAL_RANK in the environment; the script gets None or its default.",
        what="The script parses --local_rank or --local-rank and reads LOCAL_RANK nowhere. torchrun, and torch.distributed.launch with --use-env, pass no such argument; without --use-env torch 2 passes --local-rank, with a dash. The line that is shown works with every spelling: torchrun fills `${local_rank}` for each rank.",
        do="Write the line into the job, or read LOCAL_RANK in the script",
        cases={
            "": Case(fix="in the job: {line}"),
            "launch": Case(fix="in the job: use_env: true\nand: {line}"),
        },
    ),
    "CC-CODE-002": Entry(
        "warning",
        "the script starts its own workers, and so does the launcher",
        why="Each rank of torchrun starts all workers again: too many processes, in groups of their own, or none at all.",
        what="The script calls torch.multiprocessing.spawn. It wants one process on each node, which `launcher: python` starts. On several nodes the script must count its ranks from the node's number: from arguments that it takes, or from NODE_RANK and NNODES in the environment.",
        do="Set `launcher: python`",
        cases={
            "": Case(
                fix='in the job: launcher: python\nand with several nodes, at the start of the worker function in the script: rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])'
            ),
            "args": Case(fix="in the job: launcher: python\nand: {line}"),
        },
    ),
    "CC-CODE-003": Entry(
        "warning",
        "the address in the code is not that of node 0",
        why="The ranks connect to that address, and wait there until they time out, or each node trains on its own.",
        what="All ranks meet at node 0, whose training address and port clusterctl passes as MASTER_ADDR and MASTER_PORT, and as the placeholders `${master_addr}` and `${master_port}`. An address of another cluster, of another node, or localhost with several nodes leads elsewhere. Names that only the nodes can resolve are not judged.",
        do="Let clusterctl pass the address",
        cases={
            "": Case(fix='in the script: init_method="env://"'),
            "master": Case(fix="remove the line: MASTER_ADDR is set already"),
            "args": Case(fix="in the job: {line}"),
        },
    ),
    "CC-CODE-004": Entry(
        "warning",
        "an address for init_process_group has no tcp://",
        why="torch fails with `No rendezvous handler for ://`.",
        what="`init_method` is a URL. An address without a scheme, as 10.0.0.1:23456, is none.",
        do="Write `tcp://` before the address",
        cases={
            "": Case(fix='in the script: init_method="env://"'),
            "args": Case(fix="in the job: {line}"),
        },
    ),
    "CC-CODE-005": Entry(
        "warning",
        "the code uses torch._six, which torch 2 does not have",
        why="It fails when the line is executed: the nodes need torch 2.2 or newer.",
        what="torch 2.0 removed the module. Replace the name where it is used: `torch._six.string_classes` by `str`, `torch._six.int_classes` by `int`, `torch._six.inf` by `math.inf`, `torch._six.container_abcs` by `collections.abc`. Then remove the import, if there is one.",
        do="Replace the name where it is used",
        cases={
            "": Case(
                fix="write str for torch._six.string_classes, math.inf for torch._six.inf, collections.abc for torch._six.container_abcs"
            ),
        },
    ),
    "CC-CODE-006": Entry(
        "warning",
        "the script takes its rank as an argument, and the job does not pass it",
        why="All processes get the same default, so they wait for each other, or for an address of their own.",
        what="The script gives the value of an option to init_process_group as `rank`: it is meant to be started once on each machine, with another number. `launcher: python` starts it so, and the placeholder `${node_rank}` is the number.",
        do="Set `launcher: python` and pass `${node_rank}`",
        cases={
            "": Case(fix="in the job: launcher: python\nnproc_per_node: 1\n{line}"),
        },
    ),
}
