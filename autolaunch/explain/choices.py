"""Choices for a person: each with its verdict and reason, or one line for each dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from autolaunch.capability.verdicts import DimensionVerdict
from autolaunch.explain.screen import Line, Style
from autolaunch.explain.words import groups, runs, whose

STYLES: Final[Mapping[str, Style]] = {"eligible": "good", "unknown": "warn", "excluded": "bad"}
"""How a verdict is shown."""
_WIDE = 9


def every_choice(dimensions: Sequence[DimensionVerdict]) -> Iterator[Line]:
    """Every choice of every dimension with its reason."""
    yield Line("choices", style="head")
    for dimension, like in choice_sections(dimensions):
        yield Line(
            dimension.title, f"  {dimension.flag}: {runs(dimension)} ({whose(dimension)})", "head", indent=2
        )
        if like is not None:
            yield Line("the same verdicts as for ", f"{like.title}, `{like.flag}`", "dim", indent=4)
            continue
        for group in groups(dimension.choices):
            named = f"  [{', '.join(group.rules)}]" if group.rules else ""
            yield Line(
                f"{group.verdict:<{_WIDE}}",
                f"{', '.join(group.choices)}: {group.reason}{named}",
                STYLES[group.verdict],
                indent=4,
                hang=_WIDE,
            )


def overview(dimensions: Sequence[DimensionVerdict]) -> Iterator[Line]:
    """One line for each dimension that is raced or decided: what runs, what else might, how many cannot."""
    shown = [one for one in dimensions if (one.raced and not one.is_switch) or one.decision != "kept"]
    wide = max((len(one.title) for one in shown), default=0) + 2
    yield Line("choices", style="head")
    for one in shown:
        others = [choice for choice in one.choices if choice.choice != one.effective]
        names = [choice.choice for choice in others if choice.verdict == "eligible"]
        said = [f"or {', '.join(names)}"] if names and not one.is_switch else []
        for verdict in ("unknown", "excluded"):
            count = sum(choice.verdict == verdict for choice in others)
            said += [f"{count} {verdict}"] if count else []
        style: Style = {"repaired": "good", "pinned": "warn"}.get(one.decision, "")  # type: ignore[assignment]
        mark = f" ({one.decision})" if one.decision != "kept" else ""
        yield Line(
            f"{one.title:<{wide}}{runs(one)}{mark}",
            f"  {'; '.join(said)}" if said else "",
            style,
            indent=2,
            hang=wide,
        )
    hidden = sum(bool(one.choices) for one in dimensions) - len(shown)
    more = f" of these and of {hidden} more dimensions" if hidden > 0 else ""
    reasons = f"{more} with its reason: `autolaunch explain … | less`, or `--why DIMENSION`"
    yield Line("every choice", reasons, "dim", indent=2)


def choice_sections(
    dimensions: Sequence[DimensionVerdict],
) -> Iterator[tuple[DimensionVerdict, DimensionVerdict | None]]:
    """Each dimension, with the earlier one that has the same choices and verdicts, if there is one."""
    told: list[DimensionVerdict] = []
    for dimension in dimensions:
        if not dimension.choices and dimension.pinned is None:
            continue  # it has no list of choices, and nothing was chosen
        like = next((one for one in told if _is_alike(one, dimension)), None)
        if like is None:
            told.append(dimension)
        yield dimension, like


def _is_alike(one: DimensionVerdict, other: DimensionVerdict) -> bool:
    """Whether two dimensions have the same choices with the same verdicts and reasons."""
    return len(one.choices) > 1 and [(c.choice, c.verdict, c.reason) for c in one.choices] == [
        (c.choice, c.verdict, c.reason) for c in other.choices
    ]
