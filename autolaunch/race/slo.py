"""Ceilings that a server has to keep, from what people type."""

from __future__ import annotations

from dataclasses import dataclass

from autolaunch.units import parse_duration


@dataclass(frozen=True, slots=True)
class Slo:
    """Ceilings for the 95th percentile; None where there is none."""

    ttft_ms: float | None = None
    """Time to the first token."""
    tpot_ms: float | None = None
    """Time per output token after the first."""

    @property
    def words(self) -> str:
        """As a person types it."""
        bounds = (("ttft", self.ttft_ms), ("tpot", self.tpot_ms))
        return ",".join(f"{name}={value:g}ms" for name, value in bounds if value is not None)


def parse_slo(text: str) -> Slo:
    """The ceilings in `text`, such as `ttft=200ms,tpot=25ms`; ValueError says what is wrong."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in ("ttft", "tpot"):
            raise ValueError(f"`{part.strip()}` is no ceiling such as ttft=200ms or tpot=25ms")
        if name in found:
            raise ValueError(f"`{name}` is given twice")
        if not value:
            raise ValueError(f"`{name}` has no time; write it like `{name}=200ms`")
        if value.replace(".", "", 1).isdecimal():
            raise ValueError(f"`{part.strip()}` has no unit; write `{name}={value}ms`")
        found[name] = 1000 * parse_duration(value)
        if not found[name] > 0:
            raise ValueError(f"`{part.strip()}` can be kept by no server")
    return Slo(found.get("ttft"), found.get("tpot"))
