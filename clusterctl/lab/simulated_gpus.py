"""A program that answers as nvidia-smi does, for lab nodes with simulated GPUs, which compute nothing."""

from __future__ import annotations

from pathlib import Path

MAX_GPUS = 16
MODEL = "Simulated GPU"  # by which `check` recognises that nothing can be computed on it
MODE_FILE = ".lab-gpus"  # in a node's home: the simulated state of its GPUs


def write_smi(folder: Path, node: str, count: int) -> None:
    """Put `nvidia-smi` for a node into a directory."""
    folder.mkdir(mode=0o755, exist_ok=True)
    path = folder / "nvidia-smi"
    path.write_text(render_smi(node, count), encoding="ascii")
    path.chmod(0o755)


def render_smi(node: str, count: int) -> str:
    """Write the program: tables by `--query-gpu`, the XML of `-q -x`, the links of `nvlink -s`."""
    program = _PROGRAM.replace("@NODE@", node).replace("@COUNT@", str(count))
    return program.replace("@FILE@", MODE_FILE).replace("@MODEL@", MODEL)


_PROGRAM = r"""#!/bin/sh
# SIMULATED by `clusterctl lab up --gpus @COUNT@`: there is no GPU here, and nothing can be computed on it.
# ~/@FILE@ may hold one of: hang, lost, hot, full
count=@COUNT@ last=$((@COUNT@ - 1)) mode=
[ -r "$HOME/@FILE@" ] && read -r mode < "$HOME/@FILE@"
busy=$(( ($$ * 13) % 100 ))

describe() {
  i=$1 uuid=GPU-SIMULATED-@NODE@-$1 bus=00000000:$((10 + $1)):00.0 used=4 heat=$((40 + $1)) hot='Not Active'
  [ "$mode" = full ] && used=79000
  [ "$mode" = hot ] && [ "$i" = "$last" ] && heat=95 hot=Active
  share=$(( (busy + i * 7) % 100 ))
}

cell() {
  case $1 in
    index) cell=$i;; uuid|gpu_uuid) cell=$uuid;; name|gpu_name) cell='@MODEL@';; pci.bus_id) cell=$bus;;
    driver_version) cell=580.95.05;; memory.total) cell=81920;; memory.used) cell=$used;;
    compute_mode) cell=Default;; compute_cap) cell=9.0;; mig.mode.current) cell=Disabled;;
    utilization.gpu) cell=$share;; temperature.gpu) cell=$heat;; power.draw) cell=$((90 + share * 6)).25;;
    *) cell=0;;
  esac
}

table() {
  i=0
  while [ $i -lt $count ]; do
    describe $i; line=
    for field in $(echo "$1" | tr , ' '); do cell "$field"; line="$line, $cell"; done
    echo "${line#, }"; i=$((i + 1))
  done
}

xml() {
  echo '<?xml version="1.0" ?>'
  echo "<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>$count</attached_gpus>"
  i=0
  while [ $i -lt $count ]; do
    describe $i
    echo "<gpu id=\"$bus\"><product_name>@MODEL@</product_name><uuid>$uuid</uuid>
<persistence_mode>Enabled</persistence_mode>
<pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width>
</link_widths></pci_gpu_link_info></pci>
<clocks_event_reasons><clocks_event_reason_sw_thermal_slowdown>$hot</clocks_event_reason_sw_thermal_slowdown>
</clocks_event_reasons>
<remapped_rows><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
</remapped_rows><fabric><state>N/A</state><status>N/A</status></fabric></gpu>"
    i=$((i + 1))
  done
  echo '</nvidia_smi_log>'
}

if [ "$mode" = hang ]; then exec sleep 3600; fi
if [ "$mode" = lost ]; then
  count=$last
  echo "Unable to determine the device handle for GPU0000:$((10 + last)):00.0: GPU is lost. Reboot to recover it."
fi
case $1 in
  --query-gpu=*) table "${1#--query-gpu=}";;
  --query-compute-apps=*) ;;
  -q) xml;;
  nvlink) ;;
  *) echo "SIMULATED: $count GPUs"; table index,name,utilization.gpu,memory.used;;
esac
"""
