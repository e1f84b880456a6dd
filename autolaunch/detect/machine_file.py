"""Reads `--for-machine FILE`: what `autolaunch doctor --format json` wrote on another machine.

Also read are the same object alone, and the JSON of `autolaunch explain`; a person may write one by hand,
so a GPU needs no more than a name that is known, or an `sm`.  The file is not trusted: its size, its depth
and every value are checked.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from autolaunch.detect.gpus import Gpu, Machine, refusal_of
from autolaunch.detect.host import Platform
from autolaunch.detect.modules import asked_for
from autolaunch.detect.products import products
from autolaunch.detect.software import OTHERS, Package, Software
from autolaunch.errors import UsageError

FILE_LIMIT = 4 << 20
MOST_GPUS = 1024

_MOST_BYTES = 1 << 50
_SM = range(10, 1000)
_TEXT_LIMIT = 200
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,59}")
_HINT = "write one with `autolaunch doctor --format json > FILE` on that machine"
_PLATFORMS: tuple[Platform, ...] = ("cuda", "cpu", "other")


def read_machine_file(path: Path) -> tuple[Machine, Software | None]:
    """The machine in the file, and the software when it tells of any; UsageError names what is wrong."""
    document = _document(path)
    reader = _Reader(path)
    outer = reader.table(document, "the file")
    inner = reader.table(outer["machine"], "`machine`") if "machine" in outer else outer
    machine = reader.machine(inner)
    told = outer.get("software")
    return machine, None if told is None else reader.software(reader.table(told, "`software`"))


def _document(path: Path) -> Any:
    """The JSON in the file."""
    shown = _shown(path)
    try:
        # Not blocking: a pipe or a device would make us wait for somebody to write.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read `--for-machine {shown}`", because=(reason,), hint=_HINT) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"`--for-machine {shown}` is no file", hint=_HINT)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise UsageError(
            f"`--for-machine {shown}` is larger than {FILE_LIMIT >> 20} MiB, so it describes no machine",
            hint=_HINT,
        )
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:_TEXT_LIMIT]
        raise UsageError(f"`--for-machine {shown}` is no JSON", because=(reason,), hint=_HINT) from error


def _shown(path: Path) -> str:
    """`path` as a message can hold it."""
    text = str(path)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"


def _no_number(text: str) -> NoReturn:
    """`NaN` and `Infinity` are no JSON."""
    raise ValueError(f"`{text}` is no number of JSON")


class _Reader:
    """Checks values and knows which file to blame."""

    def __init__(self, path: Path) -> None:
        self.path = _shown(path)

    def fail(self, where: str, problem: str) -> NoReturn:
        """UsageError for a value."""
        raise UsageError(
            f"`--for-machine {self.path}` describes no machine", because=(f"{where} {problem}",), hint=_HINT
        )

    def table(self, value: Any, where: str) -> Mapping[str, Any]:
        """`value` when it is an object."""
        if not isinstance(value, dict):
            self.fail(where, f"is {_kind(value)}, not an object")
        return value

    def number(self, table: Mapping[str, Any], key: str, where: str, most: int = _MOST_BYTES) -> int | None:
        """A whole number from 0 to `most`, or None."""
        value = table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"`{key}` of {where}", f"is {_kind(value)}, not a whole number")
        if not 0 <= value <= most:
            self.fail(f"`{key}` of {where}", f"is not between 0 and {most}")
        return value

    def text(self, table: Mapping[str, Any], key: str, where: str) -> str | None:
        """A short printable text, or None."""
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fail(f"`{key}` of {where}", f"is {_kind(value)}, not a text")
        if not value.isprintable() or len(value) > _TEXT_LIMIT:
            self.fail(f"`{key}` of {where}", "is too long, or has characters that cannot be printed")
        return value

    def truth(self, table: Mapping[str, Any], key: str, where: str) -> bool | None:
        """True, False or None."""
        value = table.get(key)
        if value is not None and not isinstance(value, bool):
            self.fail(f"`{key}` of {where}", f"is {_kind(value)}, not true or false")
        return value

    def machine(self, table: Mapping[str, Any]) -> Machine:
        """The machine an object describes."""
        where = "the machine"
        platform = self.text(table, "platform", where) or "cuda"
        if platform not in _PLATFORMS:
            self.fail("`platform`", f"is `{platform}`, and may be {', '.join(_PLATFORMS)}")
        listed = table.get("gpus")
        if not isinstance(listed, list):
            self.fail("`gpus`", f"is {_kind(listed)}, not a list")
        if len(listed) > MOST_GPUS:
            self.fail("`gpus`", f"has {len(listed)} entries, more than {MOST_GPUS}")
        gpus = tuple(self.gpu(place, one) for place, one in enumerate(listed))
        return Machine(
            platform=platform,
            source="file",
            cores=self.number(table, "cores", where, 1 << 20) or 1,
            memory_available_bytes=self.number(table, "memory_available_bytes", where) or 0,
            gpus=gpus,
            driver=self.text(table, "driver", where),
            cuda=self.text(table, "cuda", where),
            nvlink=self.truth(table, "nvlink", where),
            p2p=self.truth(table, "p2p", where),
            shared_memory_bytes=self.number(table, "shared_memory_bytes", where),
            refusal=refusal_of(gpus),
            sources={"gpus": f"`--for-machine {self.path}`"},
        )

    def gpu(self, place: int, value: Any) -> Gpu:
        """One GPU; what the file leaves out comes from the product table."""
        where = f"GPU {place}"
        table = self.table(value, where)
        name = self.text(table, "name", where)
        product = products().named(name)
        sm = self.number(table, "sm", where, _SM.stop - 1)
        if sm is None and product is not None:
            sm = product.sm
        if sm is None or sm not in _SM:
            self.fail(where, "has neither an `sm` such as 90 nor a `name` that is known")
        watts = table.get("power_limit_w")
        if watts is not None and (isinstance(watts, bool) or not isinstance(watts, int | float)):
            self.fail(f"`power_limit_w` of {where}", f"is {_kind(watts)}, not a number")
        mig = bool(self.truth(table, "mig", where))
        whole = None if mig else product  # what a product has, a slice of it has not
        memory = self.number(table, "memory_bytes", where) or (whole.memory_bytes if whole else None)
        free = self.number(table, "memory_free_bytes", where)
        return Gpu(
            index=place,
            name=name or f"a GPU of SM {sm // 10}.{sm % 10}",
            sm=sm,
            sm_count=self.number(table, "sm_count", where, 1 << 16) or (whole.sm_count if whole else None),
            memory_bytes=memory,
            memory_free_bytes=free if memory is None or free is None else min(free, memory),
            uuid=self.text(table, "uuid", where),
            mig=mig,
            power_limit_w=None if watts is None else float(watts),
            unified=bool(self.truth(table, "unified", where) or (product and product.unified)),
            product=product.id if product else None,
        )

    def software(self, table: Mapping[str, Any]) -> Software | None:
        """The versions an object tells of; None when it tells of no SGLang."""
        sglang = self.package(table, "sglang")
        if sglang.version is None:
            return None
        others = self.table(table.get("others", {}), "`others`")
        modules = self.table(table.get("modules", {}), "`modules`")
        return Software(
            sglang=sglang,
            flashinfer=self.package(table, "flashinfer"),
            torch=self.package(table, "torch"),
            sgl_kernel=self.package(table, "sgl_kernel"),
            cudnn=self.package(table, "cudnn"),
            triton=self.package(table, "triton"),
            cuda=self.package(table, "cuda"),
            others={name: self.package(others, name) for name in OTHERS if name in others},
            modules={
                one.name: self.truth(modules, one.name, "`modules`")
                for one in asked_for()
                if one.name in modules
            },
        )

    def package(self, table: Mapping[str, Any], name: str) -> Package:
        """One version, as an object with `version` or as a text."""
        value = table.get(name)
        told = value if isinstance(value, dict) else {"version": value}
        version = self.text(told, "version", f"`{name}`")
        if version is not None and not _VERSION.fullmatch(version):
            self.fail(f"`{name}`", "is no version")
        return Package(version, "assumed", f"`--for-machine {self.path}`")


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "missing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
