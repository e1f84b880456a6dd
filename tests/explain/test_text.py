"""What a person reads first, and that nothing is missing further down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autolaunch.assessment import Assessment, Wishes
from autolaunch.explain.text import result_of
from autolaunch.memory.estimate import MemoryEstimate
from tests.explain.cases import PLAN, ask, text_of


def test_the_first_screen(seed: Assessment) -> None:
    """Result, memory, repairs with because and evidence, NEXTN with gain and cost, warnings; in this order."""
    text = text_of(seed)
    head = text.split("\n\nchoices\n")[0]
    order = [
        "1 repair, 1 suggestion, ",
        "on 8 × NVIDIA RTX PRO 6000 Blackwell Server Edition (SM 12.0, ",
        "SGLang 0.5.21 (assumed), FlashInfer ",
        "\nmemory: it fits: 29 GiB",
        "\nrepair: `--moe-runner-backend flashinfer_cutlass` in place of SGLang's own `flashinfer_trtllm`\n  because ",
        "\n  evidence: ",
        "\nNEXTN: suggested, nothing is measured yet: `--speculative-algorithm EAGLE`\n  because its heads are there",
        "\n  gain: 1.4 to 2.0 times the output of one request; cost: 4.4 GiB on each GPU",
        "\n  but SGLang takes 48 requests at most then",
    ]
    places = [head.find(words) for words in order]
    assert -1 not in places, (order[places.index(-1)], head)
    assert places == sorted(places)
    assert len(head.splitlines()) < 40
    assert text.index("\nchoices\n") < text.index("\na race would try") < text.index("\nnext\n")


def test_counts_have_their_plural(seed: Assessment) -> None:
    none = replace(seed, nextn=replace(PLAN, suggested=False), warnings=())
    assert result_of(none) == "1 repair, 0 suggestions, 0 warnings"


def test_a_model_that_does_not_fit(seed: Assessment) -> None:
    memory = MemoryEstimate(fits=False, reason="300 GiB do not fit", smallest_tp=4, hint="`--tp 4` fits")
    big = replace(seed, memory=memory)
    text = text_of(big)
    assert "memory: it does not fit: 300 GiB do not fit\n  hint: `--tp 4` fits\n" in text
    assert big.hopeless is not None
    assert big.hopeless.id == "memory.weights"


def test_pinned_harm_is_said_loudly(qwen: Path) -> None:
    text = text_of(ask(qwen, "--tp", "8", "--attention-backend", "fa3", gpu="RTX PRO 6000", sglang="0.5.21"))
    head = text.split("\n\nchoices\n")[0]
    assert (
        "\nwarning: `--attention-backend fa3` is refused by SGLang here, and you pinned it\n  because "
        in head
    )
    assert "fa3 (pinned by you)" in text


def test_a_checkpoint_that_is_not_looked_into(tmp_path: Path) -> None:
    text = text_of(ask("s3://bucket/model", gpu="H200", cwd=tmp_path))
    assert "\n  not inspected: its files lie in an object store\n" in text
    assert "\nNEXTN: " not in text


def test_nextn_on_is_in_the_command(qwen: Path) -> None:
    found = ask(qwen, "--tp", "8", gpu="H200", sglang="0.5.23", wishes=Wishes(nextn="on"))
    if found.nextn.usable:
        assert "--speculative-algorithm" in found.command.argv
        assert "chosen, because you said `--nextn on`" in text_of(found)
