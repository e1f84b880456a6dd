"""A machine with GPUs that only NVML tells of, and a stand-in for SGLang on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.checkpoint.make_checkpoint import Tensor, write_checkpoint
from tests.launch.harness import HERE, PROBE
from tests.real_server import ROOT

SM_120 = "rtx-pro-6000-bw-x8.sm120.json"
HIDDEN, KEYS, INNER, WORDS = 64, 32, 128, 512


class Box:
    """A machine whose NVML is a capture, and a stand-in for SGLang on it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state.json"
        self.cwd = folder
        paths = [HERE / "fake_nvml", HERE / "fake_sglang", ROOT]
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "FAKE_NVML": SM_120,
            "FAKE_STATE": str(self.state),
            "FAKE_PROBE": str(PROBE),
        }

    def argv(self, model: Path | str, *words: str) -> list[str]:
        """The command line; `--device cuda`, because a test machine has no driver's files."""
        return [sys.executable, "-m", "autolaunch", "serve", str(model), "--device", "cuda", *words]

    def run(self, model: Path | str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Start it and wait for its end: `FAKE_DEADLY` must have a word of its command line."""
        return subprocess.run(
            self.argv(model, *words),
            env={**self.environ, **environ},
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def dry_run(self, model: Path | str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """What a dry run prints."""
        done = subprocess.run(
            self.argv(model, *words, "--dry-run"),
            env={**self.environ, **environ},
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done

    def document(self, model: Path | str, *words: str, **environ: str) -> dict[str, Any]:
        """What it prints for a program."""
        value: dict[str, Any] = json.loads(self.dry_run(model, *words, "--format", "json", **environ).stdout)
        return value


def llama(place: Path, *, layers: int) -> Path:
    """A small Llama whose weights are there, of `layers` layers."""
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (KEYS, HIDDEN),
        "self_attn.v_proj": (KEYS, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    tensors: list[Tensor] = [
        ("model.embed_tokens.weight", "BF16", (WORDS, HIDDEN)),
        ("model.norm.weight", "BF16", (HIDDEN,)),
        ("lm_head.weight", "BF16", (WORDS, HIDDEN)),
    ]
    for layer in range(layers):
        tensors += [(f"model.layers.{layer}.{name}.weight", "BF16", shape) for name, shape in shapes.items()]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": WORDS,
        "intermediate_size": INNER,
    }
    return write_checkpoint(place / "llama", tensors, config=config)
