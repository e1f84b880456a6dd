"""A few flags, declared as SGLang declares them."""

import argparse
import dataclasses
import os


@dataclasses.dataclass
class ServerArgs:
    """The fields of those flags."""

    model_path: str
    host: str = "127.0.0.1"
    port: int = 30000

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Declare the flags."""
        parser.add_argument("--model-path", "--model", type=str, required=True)
        parser.add_argument("--host", type=str, default=ServerArgs.host)
        parser.add_argument("--port", type=int, default=ServerArgs.port)
        parser.add_argument("--api-key", type=str)
        parser.add_argument("--config", type=str)
        parser.add_argument("--device", type=str)
        parser.add_argument("--attention-backend", type=str, choices=["torch_native", "triton", "fa3"])
        parser.add_argument(
            "--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1, dest="tp_size"
        )
        parser.add_argument(
            "--moe-runner-backend",
            type=str,
            choices=[
                "auto",
                "triton",
                "flashinfer_trtllm",
                "flashinfer_cutlass",
                "flashinfer_cutedsl",
                "marlin",
            ],
        )
        parser.add_argument("--disable-overlap-schedule", action="store_true")
        parser.add_argument("--disable-radix-cache", action="store_true")
        parser.add_argument("--skip-tokenizer-init", action="store_true")


def prepare_server_args(argv: list[str]) -> argparse.Namespace:
    """The parsed arguments, for an engine of a race; `FAKE_BEHAVE` says how it misbehaves."""
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return argparse.Namespace(behave=os.environ.get("FAKE_BEHAVE", "well"), **vars(parser.parse_args(argv)))
