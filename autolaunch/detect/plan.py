"""The machine that `--for-gpu`, `--for-sm`, `--for-gpus` and `--for-machine` describe instead of this one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autolaunch.detect import host
from autolaunch.detect.gpus import Gpu, Machine, refusal_of
from autolaunch.detect.machine_file import MOST_GPUS, read_machine_file
from autolaunch.detect.products import Product, product_for, products
from autolaunch.detect.software import Software
from autolaunch.errors import UsageError

_SM = re.compile(
    r"(?:sm|compute)?[ _-]?(\d{1,2})\.(\d)[a-z]?|(?:sm|compute)?[ _-]?(\d{2,3})[a-z]?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Planned:
    """What the user asks to plan for; texts as typed."""

    gpu: str | None = None
    """`--for-gpu NAME`."""
    sm: str | None = None
    """`--for-sm N`: `120`, `12.0`, `sm_120`."""
    gpus: int | None = None
    """`--for-gpus K`."""
    machine: Path | None = None
    """`--for-machine FILE`."""
    sglang: str | None = None
    """`--for-sglang V`."""
    flashinfer: str | None = None
    """`--for-flashinfer V`."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine than this one is meant."""
        return any(one is not None for one in (self.gpu, self.sm, self.gpus, self.machine))

    @property
    def words(self) -> tuple[str, ...]:
        """The options as they would be typed again."""
        options = {
            "--for-gpu": self.gpu,
            "--for-sm": self.sm,
            "--for-gpus": self.gpus,
            "--for-machine": self.machine,
            "--for-sglang": self.sglang,
            "--for-flashinfer": self.flashinfer,
        }
        return tuple(
            word for name, value in options.items() if value is not None for word in (name, str(value))
        )


def machine_for(planned: Planned, here: Callable[[], Machine], *, ranks: int = 1) -> Machine:
    """The machine `planned` describes; `here()` when it describes none.

    `ranks` is how many GPUs the flags ask for, taken when no number is given.  UsageError for a name,
    number or file that means nothing, with what was probably meant.
    """
    if not planned.is_elsewhere:
        return here()
    if planned.gpus is not None and not 1 <= planned.gpus <= MOST_GPUS:
        raise UsageError(
            f"`--for-gpus {planned.gpus}` is no number of GPUs", hint=f"give one from 1 to {MOST_GPUS}"
        )
    if planned.machine is not None:
        for option, value in (("--for-gpu", planned.gpu), ("--for-sm", planned.sm)):
            if value is not None:
                raise UsageError(
                    f"`{option} {value}` and `--for-machine` both say which GPUs are meant",
                    hint=f"leave `{option}` out",
                )
        machine, _ = read_machine_file(planned.machine)
        return machine if planned.gpus is None else _resized(machine, planned.gpus)
    if planned.gpu is None and planned.sm is None:
        return _resized(here(), planned.gpus or ranks)
    return _made(_kind(planned), planned.gpus or max(1, ranks), planned)


def software_in(planned: Planned) -> Software | None:
    """The versions written in `--for-machine FILE`, when it holds some."""
    return None if planned.machine is None else read_machine_file(planned.machine)[1]


def sm_for(text: str) -> int:
    """120 for `120`, `12.0`, `sm_120`, `sm120a`; UsageError for what is no compute capability there is."""
    read = _SM.fullmatch(text.strip()) if len(text) < 20 else None
    sm = int(read[3]) if read and read[3] else int(read[1]) * 10 + int(read[2]) if read else None
    known = sorted({*products().cores_per_sm, *(row.sm for row in products().rows)})
    if sm in known:
        return sm
    shown = text[:20] if text.isprintable() else ascii(text[:20])
    near = [one for one in known if sm is not None and (one // 10 == sm or one // 10 == sm // 10)]
    raise UsageError(
        f"`--for-sm {shown}` is no compute capability that autolaunch knows",
        because=(f"those are {', '.join(map(str, known))}",),
        hint=f"did you mean `--for-sm {near[0]}`?" if near else "give one such as 90 for H100 and H200",
    )


def _kind(planned: Planned) -> Gpu:
    """The GPU that a name or a compute capability means."""
    sm = None if planned.sm is None else sm_for(planned.sm)
    if planned.gpu is None:
        if sm is None:
            raise AssertionError("one of the two is given")
        return Gpu(0, f"a GPU of SM {sm // 10}.{sm % 10}", sm)
    product = product_for(planned.gpu)
    if sm not in (None, product.sm):
        raise UsageError(
            f"`--for-gpu {planned.gpu}` and `--for-sm {planned.sm}` contradict each other",
            because=(f"{product.name} is SM {product.sm // 10}.{product.sm % 10}",),
            hint="leave `--for-sm` out",
        )
    return gpu_of(product)


def gpu_of(product: Product) -> Gpu:
    """A GPU of a product, all of its memory free."""
    return Gpu(
        index=0,
        name=product.name,
        sm=product.sm,
        sm_count=product.sm_count,
        memory_bytes=product.memory_bytes,
        memory_free_bytes=product.memory_bytes,
        unified=product.unified,
        product=product.id,
    )


def _made(kind: Gpu, count: int, planned: Planned) -> Machine:
    """A machine with `count` of one GPU, of which nothing else is known."""
    told = f"`--for-gpu {planned.gpu}`" if planned.gpu is not None else f"`--for-sm {planned.sm}`"
    table = "the product table" if planned.gpu is not None else told
    return Machine(
        platform="cuda",
        source="named",
        cores=host.cores_available(),
        memory_available_bytes=host.memory_available_bytes(),
        gpus=tuple(replace(kind, index=index) for index in range(count)),
        sources={"platform": told, "gpus": told, "sm": table, "sm_count": table, "memory": table},
    )


def _resized(machine: Machine, count: int) -> Machine:
    """`machine` with `count` GPUs of its kind; UsageError when it has none, or several kinds."""
    if count <= len(machine.gpus):
        return machine.used(count)
    if not machine.gpus or len({gpu.name for gpu in machine.gpus}) > 1:
        raise UsageError(
            f"`--for-gpus {count}` does not say which GPUs are meant",
            because=("there is none here" if not machine.gpus else "those here are of several models",),
            hint=f"name one too, such as `--for-gpu H200 --for-gpus {count}`",
        )
    kind = replace(machine.gpus[0], uuid=None, tenants=())
    gpus = tuple(replace(kind, index=index) for index in range(count))
    return replace(machine, gpus=gpus, refusal=refusal_of(gpus), nvlink=None, p2p=None)
