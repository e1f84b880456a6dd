"""`--why DIMENSION=CHOICE`: one verdict in because/therefore form, with the facts it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autolaunch.assessment import Assessment
from autolaunch.capability.evaluate import judge_choice
from autolaunch.capability.fact_names import ENV, FACT_NAMES, FLAG, UNKNOWN, UNSET, Fact
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict, Hit
from autolaunch.errors import UsageError
from autolaunch.explain.choices import STYLES
from autolaunch.explain.screen import EMPTY, Line
from autolaunch.explain.words import evidence_line, fails, whose

_THEREFORE = {
    "eligible": "it is eligible",
    "unknown": "it is unknown, which is not excluded: it is tried after the eligible ones",
}


@dataclass(frozen=True, slots=True)
class Why:
    """One answer."""

    dimension: DimensionVerdict
    choice: ChoiceVerdict

    @property
    def label(self) -> str:
        """The choice as it is typed."""
        return (
            f"{self.dimension.flag}"
            if self.dimension.is_switch
            else f"{self.dimension.flag} {self.choice.choice}"
        )

    def to_json(self) -> dict[str, Any]:
        """As `explain --format json` prints it, with the facts of each rule."""
        return {
            "flag": self.dimension.flag,
            **self.choice.to_json(),
            "because": [
                {"rule": hit.rule, "reason": hit.sentence, "facts": dict(_told(hit))}
                for hit in self.choice.hits
            ],
        }


def answers(assessment: Assessment, questions: tuple[str, ...]) -> tuple[Why, ...]:
    """The answer to each `DIMENSION=CHOICE`; a DIMENSION alone asks for all of its choices."""
    return tuple(why for question in questions for why in _answers(assessment, question))


def _answers(assessment: Assessment, question: str) -> Iterator[Why]:
    """The answers to one question; UsageError for what names no dimension."""
    name, equals, choice = question.strip().partition("=")
    flag = name.strip() if name.strip().startswith("-") else f"--{name.strip()}"
    dimension = assessment.evaluation.dimension(flag)
    if dimension is None:
        raise _no_dimension(assessment, question, flag)
    if not equals or not choice.strip():
        yield from (Why(dimension, one) for one in dimension.choices)
        return
    verdict = dimension.choice(choice.strip()) or judge_choice(
        assessment.evaluation,
        assessment.table,
        assessment.catalogue,
        flag,
        choice.strip(),
        assessment.declared,
    )
    if verdict is not None:
        yield Why(dimension, verdict)


def _no_dimension(assessment: Assessment, question: str, flag: str) -> UsageError:
    """The error for a flag that selects nothing here, with those that are spelled alike."""
    import difflib  # here, because a right question needs none

    known = [one.flag for one in assessment.evaluation.dimensions]
    row = assessment.table.dimension(flag)
    what = f"`--why {question[:80]}` names no dimension of this model"
    if row is not None and row.in_version(assessment.catalogue) is None:
        because: tuple[str, ...] = (f"SGLang {assessment.catalogue.version} has no `{flag}`",)
    elif row is not None:
        because = (f"`{flag}` selects nothing for it",)
    else:
        because = (f"`{flag[:60]}` is no flag that selects a kernel",)
    close = difflib.get_close_matches(flag, known, n=1, cutoff=0.6) if row is None else []
    names = ", ".join(one.removeprefix("--") for one in known)
    return UsageError(
        what, because=because, hint=f"did you mean `{close[0]}`?" if close else f"those are {names}"
    )


def lines_of_why(assessment: Assessment, found: tuple[Why, ...]) -> Iterator[Line]:
    """The answers for a person."""
    for at, why in enumerate(found):
        if at:
            yield EMPTY
        yield from _lines(assessment, why)


def _lines(assessment: Assessment, why: Why) -> Iterator[Line]:
    """One answer: the verdict, the facts and the reason, what follows, the evidence, what to do."""
    choice = why.choice
    yield Line(f"`{why.label}`", f" is {choice.verdict}{_standing(why)}", STYLES[choice.verdict])
    first = True
    for hit in choice.hits:
        facts = _shown(hit)
        for text in (*((facts,) if facts else ()), hit.sentence):
            yield Line("because " if first else "and ", text, indent=2)
            first = False
    if not choice.hits:
        yield Line("because ", choice.reason, indent=2)
    elif choice.missing:
        yield Line("and ", choice.reason, indent=2)
    yield Line("therefore ", _therefore(choice), STYLES[choice.verdict], indent=2)
    for hit in choice.warnings:
        yield Line("but ", f"{hit.sentence}  [{hit.rule}]", "warn", indent=2)
    if choice.requires:
        needed = ", ".join(f"`{one.companion}`" for one in choice.requires)
        yield Line("with ", f"{needed} beside it", indent=2)
    if choice.evidence:
        yield Line("evidence: ", evidence_line(choice.evidence, choice.rules, most=4), "dim", indent=2)
    hint = _hint(assessment, why)
    if hint:
        yield EMPTY
        yield Line("hint: ", hint)


def _standing(why: Why) -> str:
    """Whether it is what runs anyway."""
    dimension = why.dimension
    if why.choice.choice == dimension.effective:
        return f", and it is what runs: {whose(dimension)}"
    if why.choice.choice == dimension.auto:
        return ", and it is what SGLang would pick by itself"
    return ""


def _therefore(choice: ChoiceVerdict) -> str:
    """What follows from the facts."""
    if choice.verdict != "excluded":
        lossy = "; it changes the precision of the arithmetic, so it is tried only with `--lossy`"
        return _THEREFORE[choice.verdict] + (lossy if choice.numerics == "lossy" else "")
    return f"{fails(choice.failure, choice.stage)}, and it is excluded"


def _hint(assessment: Assessment, why: Why) -> str | None:
    """One thing to do."""
    choice, dimension = why.choice, why.dimension
    if choice.missing:
        return f"tell it: {' '.join(sorted({_TELLS.get(one, '') for one in choice.missing} - {''}))}".rstrip(
            ": "
        )
    if choice.verdict != "excluded":
        return None
    eligible = [one.choice for one in dimension.choices if one.verdict == "eligible"]
    if dimension.is_switch or not eligible:
        return None
    admit = f"`--admit {dimension.flag.removeprefix('--')}={choice.choice}` lets it race all the same"
    return f"eligible here: {', '.join(eligible)}" + ("" if choice.failure == "rejected" else f"; {admit}")


_TELLS: Mapping[str, str] = {
    "sm": "`--for-gpu NAME` or `--for-sm N`",
    "sm_major": "`--for-gpu NAME` or `--for-sm N`",
    "gpus": "`--for-gpus K`",
    "flashinfer": "`--for-flashinfer V`",
    "sglang": "`--for-sglang V`",
    "nvlink": "`--for-machine FILE`",
    "p2p": "`--for-machine FILE`",
}


def _told(hit: Hit) -> Iterator[tuple[str, Any]]:
    """The facts of a rule by name; one that is not known is null."""
    for name, value in hit.facts:
        yield name, None if value is UNKNOWN else list(value) if isinstance(value, tuple) else value


def _shown(hit: Hit) -> str:
    """The facts of a rule as a person says them."""
    return " and ".join(_fact(name, value) for name, value in hit.facts)


def _fact(name: str, value: Fact) -> str:
    """`scheme_experts` (quantization of the routed experts) is nvfp4."""
    if name.startswith(FLAG):
        flag = f"`--{name.removeprefix(FLAG).replace('_', '-')}`"
        return f"{flag} is {'not set' if value == UNSET else _value(value)}"
    if name.startswith(ENV):
        return f"{name.removeprefix(ENV)} is {'not set' if value == UNSET else _value(value)}"
    row = FACT_NAMES.get(name)
    said = row[1].partition(",")[0] if row else name
    return f"`{name}` is {_value(value)} ({said})"


def _value(value: Fact) -> str:
    """A fact's value in words."""
    if value is UNKNOWN:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
