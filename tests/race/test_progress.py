"""What a person sees of a race: lines that stay, and on a terminal one that changes."""

from __future__ import annotations

import io

from autolaunch.race.progress import Progress


class Terminal(io.StringIO):
    """A terminal that keeps what was written; with `gone` it takes no more."""

    gone = False

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, text: str) -> int:
        if self.gone:
            raise BrokenPipeError
        return super().write(text)


class Clock:
    """Time that passes only when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_only_what_happened_is_written() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.live("c0 starts", eta_s=30)
    progress.say("c0 1113 tok/s")
    progress.done()
    assert stream.getvalue() == "autolaunch: c0 1113 tok/s\n"


def test_a_live_line_is_taken_away_before_a_line_that_stays() -> None:
    stream = Terminal()
    progress = Progress(stream, Clock(), width=80)
    progress.live("c0 starts", eta_s=30)
    shown = "autolaunch: c0 starts, about 30 s left"
    progress.say("c0 out")
    assert stream.getvalue() == f"{shown}\r{' ' * len(shown)}\rautolaunch: c0 out\n"


def test_a_live_line_changes_twice_a_second_at_most_and_fits_the_terminal() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, clock, width=20)
    progress.live("one is measured now")
    progress.live("two is measured now")
    clock.now += 0.6
    progress.live("three is measured now")
    assert "two" not in stream.getvalue()
    lines = [part.strip() for part in stream.getvalue().split("\r") if part.strip()]
    assert lines == ["autolaunch: one is", "autolaunch: three i"]


def test_a_terminal_that_is_gone_is_given_up() -> None:
    stream = Terminal()
    progress = Progress(stream, Clock(), width=80)
    stream.gone = True
    progress.say("nobody reads this")
    stream.gone = False
    progress.say("nor this")
    assert stream.getvalue() == ""


def test_lines_show_text_and_nothing_else() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.say("not tried: --api-key sekret123 --x \x1b[31m\n: slow")
    progress.block("error: --api-key=sekret123\n  because of it")
    assert stream.getvalue() == (
        "autolaunch: not tried: --api-key *** --x \\x1b[31m\\n: slow\nerror: --api-key=***\n  because of it\n"
    )
