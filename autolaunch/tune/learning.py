"""What starts and races show to fail into the store of failures, and what is there into what a start asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autolaunch.candidates.candidate import Candidate
from autolaunch.candidates.generate import WhyNot, nothing_failed
from autolaunch.detect.machine import Machine
from autolaunch.detect.ranks import used_gpus
from autolaunch.errors import render_message
from autolaunch.folders import Folders
from autolaunch.invocation import Invocation, Understood
from autolaunch.launch.mistrust import Fallback
from autolaunch.profiles import files
from autolaunch.profiles.failed import Failed, Key, Setting
from autolaunch.profiles.failures import recall, remember
from autolaunch.race.progress import Progress
from autolaunch.race.result import RaceResult
from autolaunch.request.weights import model_folder
from autolaunch.tune.lessons import change_of, depth_of, of_past, of_race

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment
    from autolaunch.capability.table import Table
    from autolaunch.serve.asked import Asked
    from autolaunch.slice.plan import SlicePlan


STARTING_LIMIT_S: Final = 1.0
"""For others to give the store back, before a server starts without what failed being kept."""
RACED_LIMIT_S: Final = 5.0
"""The same, after a race: it took minutes, and what it showed is worth some seconds."""


def store_folders(profile_dirs: tuple[str, ...], folders: Folders) -> tuple[Path, ...]:
    """The folders in which failures are looked for; the first is written."""
    from autolaunch.profiles.store import Store

    return Store.of(profile_dirs, folders).folders


def recalled(invocation: Invocation, past: Fallback, progress: Progress) -> tuple[Failed, ...]:
    """What failed before, in whatever setting; what `past` starts of this command add is kept first."""
    folders = store_folders(invocation.options.profile_dirs, invocation.folders)
    news = of_past(past)
    if news and not invocation.options.dry_run:
        _keep(folders[0], news, (), progress, STARTING_LIMIT_S)
    found = recall(folders)
    for doubt in found.doubts:
        progress.block(render_message("warning", doubt))
    known = {(one.key, one.setting) for one in found.failures}
    return (*found.failures, *(one for one in news if (one.key, one.setting) not in known))


def why_not(
    learned: tuple[Failed, ...], invocation: Invocation, understood: Understood, machine: Machine
) -> WhyNot:
    """Which candidates are not tried again, where the table is not asked."""
    if not learned:
        return nothing_failed
    from autolaunch.capability.contenders import parse_admit
    from autolaunch.profiles.learned import learn

    table = _table(invocation)
    facts = _facts(invocation, understood, machine, table)
    setting = setting_at(invocation, understood, machine, None)
    admit = tuple(map(parse_admit, invocation.options.admit))
    return learn(learned, setting, facts, table, admit=admit).why_not


def setting_at(
    invocation: Invocation, understood: Understood, machine: Machine, assessment: Assessment | None
) -> Setting | None:
    """What a failure of this start is bound to; None where the model's configuration is not to be read."""
    from autolaunch.profiles.setting import config_digest, setting_of

    if assessment is not None and assessment.checkpoint is not None:
        return setting_of_assessment(assessment)
    config = _config(understood.request.model, invocation)
    if config is None:
        return None
    table = _table(invocation)
    facts = _facts(invocation, understood, machine, table)
    return setting_of(facts, table.dimensions, config_digest(config))


def setting_of_assessment(assessment: Assessment) -> Setting | None:
    """What a failure of an assessed start is bound to; None where its checkpoint was not looked into."""
    from autolaunch.profiles.setting import config_digest, setting_of

    checkpoint = assessment.checkpoint
    if checkpoint is None:
        return None
    given, dimensions = assessment.evaluation.given, assessment.table.dimensions
    return setting_of(given, dimensions, config_digest(checkpoint.config), checkpoint=checkpoint)


# Races ------------------------------------------------------------------------------------------


def remember_race(
    asked: Asked, result: RaceResult, progress: Progress, *, piece: SlicePlan | None = None
) -> None:
    """Keep what failed in a race, and forget what was sound in it; `piece` is the slice that was raced."""
    if asked.invocation.options.dry_run or len(result.trials) < 2:
        return
    setting = setting_at(asked.invocation, asked.understood, asked.machine, asked.assessment)
    if setting is None:
        return
    used = used_gpus(asked.understood.request, asked.machine)[0]
    crowded = any(gpu.tenants for gpu in used.gpus)
    table = _table(asked.invocation)
    failures, sound = of_race(
        result, setting, table, asked.assessment, depth=depth_of(piece), crowded=crowded
    )
    folders = store_folders(asked.invocation.options.profile_dirs, asked.invocation.folders)
    _keep(folders[0], failures, sound, progress, RACED_LIMIT_S)


def launched(asked: Asked, candidate: Candidate) -> dict[str, Any] | None:
    """What the record of an attempt with `candidate` holds, so that its failure can be bound to it later."""
    if not (candidate.flags or candidate.env):
        return None
    setting = setting_at(asked.invocation, asked.understood, asked.machine, asked.assessment)
    if setting is None:
        return None
    change = change_of(candidate, asked.assessment)
    if candidate.origin == "user" and _table(asked.invocation).dimension(change.dimension) is None:
        return None
    return {
        "setting": setting.to_json(),
        "dimension": change.dimension,
        "choice": change.choice,
        "beside": [list(pair) for pair in change.beside],
    }


# The ground -------------------------------------------------------------------------------------


def _keep(
    folder: Path,
    failures: tuple[Failed, ...],
    sound: tuple[tuple[Key, Setting], ...],
    progress: Progress,
    limit_s: float,
) -> None:
    """Write to the store; a warning where that fails, and the server starts all the same."""
    try:
        with files.patience(limit_s):
            remember(folder, failures, sound)
    except OSError as error:
        because = (error.strerror or str(error),)
        progress.block(render_message("warning", f"what failed cannot be kept in `{folder}`", because))


def _table(invocation: Invocation) -> Table:
    """The table without what was learned."""
    from autolaunch.capability.table import bundled_table

    return bundled_table(invocation.folders.cache)


def _facts(
    invocation: Invocation, understood: Understood, machine: Machine, table: Table
) -> Mapping[str, Any]:
    """The facts of a start whose checkpoint is not looked into."""
    from autolaunch.capability.facts import facts_of
    from autolaunch.detect.software import detect_software

    request, environ = understood.request, invocation.environ
    software = detect_software(request.interpreter, environ, for_cuda=machine.platform == "cuda")
    used = used_gpus(request, machine)[0]
    return facts_of(used, software, None, request, understood.catalogue, table.dimensions, environ)


def _config(model: str | None, invocation: Invocation) -> Mapping[str, Any] | None:
    """The language part of the model's config.json; None where it is not here, or is none."""
    from autolaunch.checkpoint.config import language_config
    from autolaunch.checkpoint.file_names import CONFIG
    from autolaunch.checkpoint.problems import CheckpointError
    from autolaunch.checkpoint.read import read_object

    folder = model_folder(model, cwd=invocation.cwd, environ=invocation.environ)
    if folder is None:
        return None
    try:
        return language_config(read_object(folder / CONFIG)).data
    except CheckpointError:
        return None
