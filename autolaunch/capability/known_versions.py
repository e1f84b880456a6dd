"""What is assumed of an SGLang version that the table was not written for, and said about it."""

from __future__ import annotations

from autolaunch.capability.fact_names import UNKNOWN
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.versions import is_early, version_key
from autolaunch.request.catalogue import bundled_versions
from autolaunch.request.command_line import Notice


def assume_known_versions(sheet: FactSheet) -> tuple[Notice, ...]:
    """Notices on versions that the table does not know; a development image becomes the newest in `sheet`."""
    notices: list[Notice] = []
    version = sheet.get("sglang", UNKNOWN)
    newest = bundled_versions()[-1]
    if not isinstance(version, str):
        return ()
    key, newest_key = version_key(version), version_key(newest)
    if key is None or key[0] == (0,):
        sheet["sglang"] = newest
        notices.append(
            Notice(
                "table.sglang-development",
                f"SGLang {version} says no release; the table takes it for {newest}",
                because=("development images carry the version 0.0.0.dev",),
                hint="name the release it is based on with `--for-sglang`",
            )
        )
    elif newest_key is not None and key > newest_key:
        notices.append(
            Notice(
                "table.sglang-newer",
                f"SGLang {version} is newer than the table, which ends at {newest}",
                because=("rules without an upper version are applied as they are",),
            )
        )
    elif is_early(version):
        notices.append(Notice("table.sglang-early", f"SGLang {version} is taken for the release it leads to"))
    return tuple(notices)
