"""From the flags that were set to the GPUs that one node's ranks take."""

from __future__ import annotations

from autolaunch.detect.gpus import Machine, gpus_per_node
from autolaunch.request.command_line import Notice, Request


def used_gpus(request: Request, machine: Machine) -> tuple[Machine, tuple[Notice, ...]]:
    """What the ranks on one node take of `machine`, and a notice where GPUs are missing."""
    if not machine.gpus:
        return machine, ()
    wanted = ranks(request)
    used = machine.used(
        wanted, pinned_number(request, "base_gpu_id", 0), pinned_number(request, "gpu_id_step", 1)
    )
    if len(used.gpus) >= wanted:
        return used, ()
    return used, (
        Notice(
            "machine.gpus-missing",
            f"the flags ask for {wanted} GPUs, and there are {len(used.gpus)}",
            hint="plan for another machine with `--for-gpus K`, or change `--tp`",
        ),
    )


def ranks(request: Request) -> int:
    """How many GPUs the flags ask for on one node."""
    return gpus_per_node(
        pinned_number(request, "tp_size", 1, "tensor_parallel_size"),
        pinned_number(request, "pp_size", 1, "pipeline_parallel_size"),
        pinned_number(request, "dp_size", 1, "data_parallel_size"),
        pinned_number(request, "nnodes", 1),
        "enable_dp_attention" in request.pins,
    )


def pinned_number(request: Request, dest: str, default: int, formerly: str = "") -> int:
    """The whole number pinned for `dest`, before 0.5.14 `formerly`; SGLang itself refuses what is none."""
    pin = request.pins.get(dest) or request.pins.get(formerly)
    text = pin.values[-1] if pin and pin.values else ""
    return int(text) if text.isdigit() and len(text) < 8 else default
