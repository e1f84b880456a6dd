"""Runs `autolaunch tune` on a stand-in for SGLang, with a race that ends as it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.checkpoint.make_checkpoint import write_checkpoint
from tests.launch.harness import HERE as LAUNCH
from tests.real_server import ROOT

HERE = Path(__file__).parent
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "intermediate_size": 128,
}


class Tune:
    """Starts `autolaunch tune`, again and again, for one model."""

    def __init__(self, folder: Path) -> None:
        self.model = write_checkpoint(
            folder / "model", [("model.embed_tokens.weight", "BF16", (512, 64))], config=CONFIG
        )
        paths = [HERE / "planted", LAUNCH / "fake_sglang", ROOT]
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PLANT_RACE": "wins"}

    def argv(self, *words: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "autolaunch", "tune", str(self.model), *words]

    def run(self, *words: str, how: str = "wins", **extra: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end, with a race that ends as `how` says."""
        return subprocess.run(
            self.argv(*words),
            env={**self.environ, "PLANT_RACE": how, **extra},
            cwd=self.model.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def serve(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `autolaunch serve` for the same model to its end."""
        argv = [*self.argv()[:3], "serve", str(self.model), *words]
        return subprocess.run(
            argv,
            env=self.environ,
            cwd=self.model.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def document(self, *words: str, how: str = "wins", code: int = 0, **extra: str) -> dict[str, Any]:
        """What it prints for a program."""
        done = self.run(*words, "--format", "json", how=how, **extra)
        assert done.returncode == code, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    @property
    def profiles(self) -> list[Path]:
        """The files of kept profiles."""
        return sorted(Path(self.environ["AUTOLAUNCH_HOME"]).glob("data/profiles/*/*.toml"))

    def change(self, old: str, new: str) -> Path:
        """Write `new` in place of `old` into the only profile."""
        (kept,) = self.profiles
        text = kept.read_text()
        assert old in text, text
        kept.write_text(text.replace(old, new))
        return kept
