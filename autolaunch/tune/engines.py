"""The candidates of a race, and the reference of its gate, into engines that are not started yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autolaunch.candidates.candidate import Candidate
from autolaunch.invocation import Invocation, Understood
from autolaunch.race.engine import Engine
from autolaunch.race.journal import Journal
from autolaunch.race.outcomes import EngineFailed, Failure
from autolaunch.race.overlay import trial_overlay
from autolaunch.race.ports import Ports
from autolaunch.race.truth import OpenTruth
from autolaunch.slice.cut import Slice
from autolaunch.slice.dequantized import dequantize
from autolaunch.slice.home import SliceHome
from autolaunch.slice.problems import SliceError
from autolaunch.slice.weights_child import Setting
from autolaunch.tune.ground import Ground

TRUTH_LIMIT_S = 60.0
"""For writing a slice's weights in bf16; 3 to 5 s for 1.3 and 2.8 GB (H200, 2026-12-01)."""


class Opener:
    """Makes engines of one race, not yet started."""

    def __init__(
        self,
        invocation: Invocation,
        understood: Understood,
        ground: Ground,
        journal: Journal,
        census_fd: int | None,
        piece: Slice | None,
    ) -> None:
        self.invocation, self.understood, self.ground = invocation, understood, ground
        self.journal, self.census_fd, self.piece = journal, census_fd, piece
        self._ports = Ports()

    def candidate(self, candidate: Candidate, on_tick: Callable[[], None]) -> Engine:
        """The engine of a candidate."""
        folder = None if self.piece is None else self.piece.folder
        return self._engine(candidate, self.journal.log(candidate.id), folder, (), on_tick)

    def truth(self, folder: Path, on_tick: Callable[[], None]) -> Engine:
        """The engine of the gate's reference, held, for the weights in `folder`; no flag names a format."""
        pins, catalogue = self.understood.request.pins, self.understood.catalogue
        plain = tuple(
            f"--no-{name.removeprefix('--')}"
            for name in ("--quantization", "--quantization-param-path")
            if (flag := catalogue.resolve(name)) is not None and flag.dest in pins
        )
        return self._engine(
            Candidate(id="truth"), self.journal.log("truth"), folder, plain, on_tick, held=True
        )

    def _engine(
        self,
        candidate: Candidate,
        log: Path,
        folder: Path | None,
        more: tuple[str, ...],
        on_tick: Callable[[], None],
        *,
        held: bool = False,
    ) -> Engine:
        overlay = trial_overlay(
            self.understood.request.pins,
            self.understood.catalogue,
            port=self._ports.next(),
            nccl_port=self._ports.next(),
            max_total_tokens=self.ground.tokens,
            slice_folder=folder,
            company=self.ground.company.shared,
            max_states=self.ground.states,
            max_batch=self.ground.batch,
        )
        return Engine(
            self.invocation.original.with_candidate(candidate),
            (*overlay, *more),
            log=log,
            environ=self.invocation.environ,
            cwd=self.invocation.cwd,
            census_fd=self.census_fd,
            on_tick=on_tick,
            company=self.ground.company.shared,
            sglang=self.invocation.interpreter.version,
            held=held,
        )


def truth_of(opener: Opener, piece: Slice | None, home: SliceHome | None) -> OpenTruth | None:
    """What makes the gate's reference: an engine, and the slice's weights written in bf16 for it."""
    if piece is None or home is None:
        return None

    def open_truth(on_tick: Callable[[], None]) -> tuple[Engine, Callable[[], None]]:
        folder = home.new("plain")
        return opener.truth(folder, on_tick), lambda: make_weights(folder, on_tick)

    def make_weights(folder: Path, on_tick: Callable[[], None]) -> None:
        setting = Setting(
            python=opener.invocation.original.argv[0],
            environ=opener.invocation.original.environment(opener.invocation.environ),
            log=opener.journal.log("plain"),
            limit_s=TRUTH_LIMIT_S,
            census_fd=opener.census_fd,
            on_tick=on_tick,
        )
        try:
            made = dequantize(piece.folder, folder, setting)
        except SliceError as error:
            reason = "; ".join((error.what, *error.because))
            raise EngineFailed(Failure("load", "environment", reason)) from error
        opener.journal.write("plain-weights", bytes=made.bytes, seconds=made.seconds, device=made.device)

    return open_truth
