#!/bin/sh
# Make .venv ready for ./demo, ./test or ./test --all:  tools/bootstrap.sh demo|check|test|all
# `check` is the part of `test` that style and types need: no torch, which takes longest, and no Debian packages.
#
# Everything goes into .venv of this checkout, except Debian packages that are missing and may be installed
# (as root, or by sudo where it asks for no password). Says one line for each step that it really takes; when all
# is there it takes none and needs no network. Where packages come from is up to the user's pip configuration.
set -u
umask 022
unset PYTHONPATH PYTHONHOME PIP_REQUIRE_VIRTUALENV
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 1
venv=$root/.venv
log=$venv/setup.log

needed=''
lab='sshd:openssh-server ssh-keygen:openssh-client ip:iproute2 unshare:util-linux nsenter:util-linux'
wished=''
extras=''
case ${1-} in
demo) ;;
check) lab='' extras='[dev]' ;;
test | all)
    needed='git:git' wished='fish:fish tcsh:tcsh zsh:zsh nft:nftables slurmctld:slurm-wlm' extras='[dev]'
    # 200 MB and their libraries, so ./test alone does not install them
    [ "$1" = test ] || wished="$wished chromium:chromium chromedriver:chromium-driver" extras='[dev,browser]'
    ;;
*)
    echo "usage: $0 demo|check|test|all" >&2
    exit 2
    ;;
esac

# The language of the lines that are shown, as the program chooses its own (clusterctl/translation.py).
locale=${CLUSTERCTL_LANG:-${LC_ALL:-${LC_MESSAGES:-${LANG-}}}}

say() { # ENGLISH CHINESE
    case $locale in
    zh*) printf '准备环境：%s\n' "$2" >&2 ;;
    *) printf 'set-up: %s\n' "$1" >&2 ;;
    esac
}

fail() {
    say "$@"
    exit 1
}

quietly() { # COMMAND...: run it; its words go to the log
    printf '\n$ %s\n' "$*" >>"$log"
    "$@" </dev/null >>"$log" 2>&1
}

or_fail() { # COMMAND...: run it quietly; if it fails show its last words, and stop
    quietly "$@" && return
    tail -n 15 "$log" >&2
    fail "this step failed; the whole log is $log" "这一步失败，完整日志在 $log"
}

# ---- the interpreter ----

leave_own_venv() { # an activated .venv is not the calling interpreter; and sshd, ip live in sbin
    set -f
    IFS=:
    others=
    for folder in $PATH; do
        [ "$folder" = "$venv/bin" ] || others=$others$folder:
    done
    unset IFS
    set +f
    PATH=$others/usr/sbin:/sbin
}

interpreters() {
    for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        command -v "$name"
    done
}

find_python() {
    interpreters | while IFS= read -r candidate; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' </dev/null >/dev/null 2>&1 || continue
        printf '%s\n' "$candidate"
        break
    done
}

has_modules() { # NAME...
    "$python" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "$@"
}

made_by() { printf '%s in %s\n' "$python" "$root"; }

venv_stands() { # one that somebody else has made is used as it is
    [ -x "$venv/bin/python" ] && { [ ! -e "$venv/.made-by" ] || [ "$(cat "$venv/.made-by")" = "$(made_by)" ]; }
}

# ---- Debian packages ----

lacking() { # [PROGRAM:PACKAGE]...: prints the packages whose program is not there
    for pair; do
        command -v "${pair%%:*}" >/dev/null || printf '%s\n' "${pair#*:}"
    done | sort -u | tr '\n' ' '
}

lacking_python() { # Debian's Python comes without ensurepip
    if [ -z "$python" ]; then
        printf 'python3 python3-venv '
    elif ! venv_stands && ! has_modules venv ensurepip && ! has_modules virtualenv; then
        "$python" -c 'import sys; print("python%d.%d-venv " % sys.version_info[:2])'
    fi
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

may_install() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }

apt_get() { # SYSTEMD_OFFLINE keeps the packages' scripts from starting services
    as_root env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 NEEDRESTART_SUSPEND=1 \
        apt-get -y -o DPkg::Lock::Timeout=120 "$@"
}

install_packages() { # from the package lists that are there, else from fresh ones
    say "installing Debian packages: $*" "正在安装 Debian 软件包：$*"
    quietly apt_get install --no-install-recommends "$@" && return
    quietly apt_get update
    quietly apt_get install --no-install-recommends "$@"
}

keep_sshd_off() { # the lab wants the program only: this machine must not become reachable by it
    say "leaving the SSH service of this machine off, as it was" "本机的 SSH 服务保持关闭"
    if [ -d /run/systemd/system ]; then
        quietly as_root systemctl disable --now ssh.service ssh.socket
    elif [ -x /etc/init.d/ssh ]; then
        quietly as_root /etc/init.d/ssh stop
    fi
}

keep_slurm_off() { # tests start it in their own namespaces
    if [ -d /run/systemd/system ]; then
        quietly as_root systemctl disable --now slurmctld.service slurmd.service munge.service
    elif [ -x /etc/init.d/munge ]; then
        quietly as_root /etc/init.d/munge stop
    fi
}

provide_packages() {
    missing=$missing$(lacking_python)
    # shellcheck disable=SC2086  # lists of words
    if [ -n "$missing" ] && ! { may_install && install_packages $missing; }; then
        tail -n 5 "$log" >&2
        fail "please install as root (Debian's names): $missing$bare$unmet" \
            "请以 root 身份安装（Debian 的软件包名）：$missing$bare$unmet"
    fi
    # shellcheck disable=SC2086
    if [ -n "$bare" ] && ! { may_install && install_packages $bare; }; then
        say "going on without ${bare}(the lab's nodes become plain processes; root may install it)" \
            "不使用 ${bare}继续（lab 的节点改为普通进程；root 可以安装）"
    fi
    case $bare in *openssh-server*) ! command -v sshd >/dev/null || keep_sshd_off ;; esac
    # shellcheck disable=SC2086
    if [ -n "$unmet" ] && ! { may_install && install_packages $unmet; }; then
        say "going on without ${unmet}(the tests that use them are left out)" "不使用 ${unmet}继续（跳过需要它们的测试）"
    fi
    case $unmet in *slurm-wlm*) ! command -v slurmctld >/dev/null || keep_slurm_off ;; esac
}

# ---- .venv ----

prepare_folder() {
    mkdir -p "$venv" 2>/dev/null && [ -w "$venv" ] && return
    fail "$(id -un) may not write to $venv: please use a checkout of your own" \
        "$(id -un) 没有写入 $venv 的权限：请使用自己的克隆"
}

lock() { # one set-up at a time
    while ! mkdir "$venv/.lock" 2>/dev/null; do
        holder=$(cat "$venv/.lock/pid" 2>/dev/null || echo "$$")
        if [ -d "/proc/$holder" ]; then
            [ -n "${waiting-}" ] || say "waiting for another set-up of this checkout" "正在等待本目录的另一次准备"
            waiting=yes
            sleep 1
        else
            rm -rf "$venv/.lock"
        fi
    done
    echo "$$" >"$venv/.lock/pid"
    trap 'rm -rf "$venv/.lock"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

make_venv() {
    version=$("$python" -c 'import platform; print(platform.python_version())')
    say "making .venv with $python ($version)" "正在用 $python（$version）创建 .venv"
    echo unfinished >"$venv/.made-by"
    (cd "$venv" && rm -rf bin lib lib64 include share pyvenv.cfg .ready-*)
    if has_modules venv ensurepip; then
        or_fail "$python" -m venv "$venv"
    else
        or_fail "$python" -m virtualenv "$venv"
    fi
    made_by >"$venv/.made-by"
}

pip() { or_fail "$venv/bin/python" -m pip install -c "$root/constraints.txt" "$@"; }

install_project() { # what builds it beforehand, so that a later run without a network needs no isolated build
    say "installing clusterctl and what it imports" "正在安装 clusterctl 及其依赖"
    "$venv/bin/python" -c 'import pip' 2>/dev/null || or_fail "$venv/bin/python" -m ensurepip
    pip 'babel>=2.14,<3' 'hatchling>=1.24' editables
    pip --no-build-isolation -e "$root$extras"
}

catalogue=$root/clusterctl/locale/zh_CN/LC_MESSAGES/clusterctl
compile_catalogue() { # installing does it too; here it follows the text that came with an update of the checkout
    [ "$catalogue.mo" -nt "$catalogue.po" ] || or_fail "$venv/bin/python" "$root/tools/messages.py" compile
}

# ---- torch ----

torch_folders() { # prints where the calling interpreter has a torch that will do; else nothing
    "$python" - 2>/dev/null <<'PYTHON'
import importlib.util, sys
if importlib.util.find_spec("torch"):
    import torch, torch.distributed
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    if release >= (2, 2) and torch.distributed.is_available():
        print(*(p for p in sys.path if p.endswith(("site-packages", "dist-packages"))), sep="\n")
PYTHON
}

torch_works() {
    quietly "$venv/bin/python" -c 'import torch, torch.distributed.run; torch.ones(1).numpy()'
}

borrow_torch() { # the calling interpreter may be a virtual environment itself, so --system-site-packages will not do
    torch_folders | while IFS= read -r folder; do
        printf 'import site; site.addsitedir("""%s""")\n' "$folder"
    done >"$borrowed"
    [ -s "$borrowed" ] || return
    torch_works || { quietly "$venv/bin/python" -m pip install numpy && torch_works; } || return
    say "using the torch of $python" "使用 $python 的 torch"
}

# torch's own index of builds without CUDA, which the default index of packages does not have
cpu_index=https://download.pytorch.org/whl/cpu

wants_cpu_build() { # no NVIDIA GPU, and neither pip's settings nor the environment say where packages come from
    [ "$(uname -sm)" = 'Linux x86_64' ] || return
    [ ! -e /proc/driver/nvidia/version ] && ! command -v nvidia-smi >/dev/null || return
    ! "$venv/bin/python" -m pip config list 2>/dev/null | grep -Eq '(index-url|find-links|no-index)='
}

install_cpu_build() { # TORCH: false if it cannot be had there; the other packages come from where they always do
    say "looking for $1 without CUDA (no NVIDIA GPU here): 200 MB, 1 GB unpacked, about a minute" \
        "正在查找不含 CUDA 的 $1（本机没有 NVIDIA GPU）：下载 200 MB，解压后 1 GB，约 1 分钟"
    quietly "$venv/bin/python" -m pip install --no-deps --no-compile --retries 1 --timeout 10 \
        --index-url "$cpu_index" "$1"
}

train_once() { # compiles the fifth of torch that is used, which pip would take twice as long for; nodes only read it
    quietly env -u PYTHONDONTWRITEBYTECODE GLOO_SOCKET_IFNAME=lo "$venv/bin/python" -c '
import torch.distributed as dist, torch.distributed.run, torch.multiprocessing, torch.utils.data, torch
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
for rule in (torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())):
    model(torch.ones(1, 1)).sum().backward()
    rule.step()
dist.destroy_process_group()'
}

provide_torch() {
    torch_works || borrow_torch && return
    rm -f "$borrowed"
    torch=$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$root/constraints.txt")
    if ! wants_cpu_build || ! install_cpu_build "$torch"; then
        say "installing $torch and numpy: with its CUDA libraries up to 4.7 GB, 5 minutes or more" \
            "正在安装 $torch 和 numpy：连同 CUDA 库最多 4.7 GB，需要 5 分钟以上"
    fi
    pip --no-compile --no-build-isolation -e "${root}[torch]"
    train_once
    torch_works || fail "torch was installed but does not work; the reason is at the end of $log" \
        "torch 已安装但无法使用，原因在 $log 的末尾"
}

# ---- what happens ----

leave_own_venv
# shellcheck disable=SC2086  # lists of words
missing=$(lacking $needed) bare=$(lacking $lab) unmet=$(lacking $wished)

state() { { cat "$root/pyproject.toml" "$root/constraints.txt" "$0" && echo "$root" && interpreters; } | cksum; }

is_ready() { [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.ready-$1" 2>/dev/null)" = "$(state)" ]; }

[ -z "$missing" ] && is_ready "$1" && { [ -z "$bare" ] || ! may_install; } && compile_catalogue && exit
prepare_folder
lock
: >"$log"
python=$(find_python)
provide_packages
is_ready "$1" && compile_catalogue && exit
python=$(find_python)
[ -n "$python" ] || fail "no Python 3.10 or newer found: please install python3 and python3-venv" \
    "找不到 Python 3.10 或更新版本：请安装 python3 和 python3-venv"
venv_stands || make_venv
borrowed=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-borrowed-torch.pth
[ ! -e "$borrowed" ] || rm -f "$borrowed" "$venv"/.ready-* # pip would count on what is borrowed
{ [ "$1" = test ] && is_ready check; } || install_project
compile_catalogue
[ "$1" = check ] || provide_torch
case $1 in
test) includes='demo check' ;;
all) includes='demo check test' ;;
*) includes='' ;;
esac
for purpose in $includes "$1"; do state >"$venv/.ready-$purpose"; done
