"""An Assessment as Markdown for an issue or a page; names from outside cannot start markup of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from autolaunch.assessment import Assessment
from autolaunch.capability.verdicts import DimensionVerdict
from autolaunch.explain.choices import choice_sections
from autolaunch.explain.next_steps import next_steps
from autolaunch.explain.screen import Line, plain
from autolaunch.explain.text import headline, left_out, top
from autolaunch.explain.words import groups, runs, whose

_MARKUP = re.compile(r"([\\*_\[\]<>#|~])")
_CODE = re.compile(r"(`[^`]*`)")


def markdown_of(assessment: Assessment) -> str:
    """The whole page."""
    return "\n".join(_page(assessment)) + "\n"


def markdown_of_lines(lines: Iterable[Line]) -> str:
    """Lines made for a screen as a list; an empty line ends a paragraph."""
    return "\n".join(_listed(lines)) + "\n"


def _page(assessment: Assessment) -> Iterator[str]:
    """Headline, what matters, a table for each dimension, what to do."""
    head, *rest = headline(assessment)
    yield f"## {_escaped(head.head + head.body)}"
    yield ""
    yield from _listed(rest)
    yield from _listed(top(assessment))
    yield ""
    yield "### Choices"
    for dimension, like in choice_sections(assessment.evaluation.dimensions):
        yield ""
        title = f"**{_escaped(dimension.title)}** `{dimension.flag}`"
        yield f"{title}: {_code(runs(dimension))} ({_escaped(whose(dimension))})"
        yield ""
        if like is not None:
            yield f"The same verdicts as for `{like.flag}`."
        else:
            yield from _table(dimension)
    if len(assessment.field.candidates) > 1:
        yield ""
        yield "### A race would try"
        yield ""
        yield "| | flags |"
        yield "| --- | --- |"
        for one in assessment.field.candidates:
            yield f"| {one.id} | {_code(one.label)} |"
        yield ""
        yield from _listed(left_out(assessment))
    yield ""
    yield "### Next"
    yield ""
    yield "```sh"
    for what, command in next_steps(assessment):
        yield f"{plain(command)}  # {what}"
    yield "```"


def _table(dimension: DimensionVerdict) -> Iterator[str]:
    """The choices of one dimension."""
    if not dimension.choices:
        yield "No list of choices."
        return
    yield "| verdict | choice | reason | rule |"
    yield "| --- | --- | --- | --- |"
    for group in groups(dimension.choices):
        names = ", ".join(map(_code, group.choices))
        rules = ", ".join(map(_code, group.rules))
        yield f"| {group.verdict} | {names} | {_escaped(group.reason)} | {rules} |"


def _listed(lines: Iterable[Line]) -> Iterator[str]:
    """Lines of a screen as list items, those that are indented below the one before."""
    for line in lines:
        text = f"{line.head}{line.body}".strip()
        if text:
            yield f"{'  ' * (line.indent // 2)}- {_escaped(text)}"


def _escaped(text: str) -> str:
    """`text` with markup taken for letters, but for what stands between backticks."""
    parts: Sequence[str] = _CODE.split(plain(text))
    return "".join(
        part.replace("|", "\\|") if at % 2 else _MARKUP.sub(r"\\\1", part).replace("`", "\\`")
        for at, part in enumerate(parts)
    )


def _code(text: str) -> str:
    """`text` as code in a table."""
    return f"`{plain(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
