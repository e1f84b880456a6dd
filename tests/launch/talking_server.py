"""A server that talks like SGLang, soundly or with one fault, and writes down what it was asked.

    python talking_server.py PORT FILE [FAULT...] [--host H] [--ssl CERT] [--key KEY] [--after S] [--root PATH]

FILE gets one JSON object a request, those for health not among them.  What it says to a prompt depends on the
prompt alone, and reading gives the same scores as generating.
"""

import hashlib
import http.server
import json
import os
import signal
import socketserver
import ssl
import sys
import threading
import time
from pathlib import Path

words = sys.argv[1:]


def value(name: str, default: str) -> str:
    return words[words.index(name) + 1] if name in words else default


PORT, FILE, FAULTS = int(words[0]), words[1], set(words[2:])
KEY, ROOT = value("--key", ""), value("--root", "")
LOCK = threading.Lock()
LEAKED = "a-word-that-is-nobodys-business"
seen: list[dict] = []
INFO = {
    "attention_backend": "fa3",
    "fp4_gemm_runner_backend": "flashinfer_cudnn",
    "load_format": "dummy" if "dummy" in FAULTS else "auto",
    "disaggregation_mode": next((mode for mode in ("prefill", "decode") if mode in FAULTS), "null"),
    "is_embedding": False,
    "node_rank": 0,
    "skip_tokenizer_init": "bare" in FAULTS,
    "speculative_algorithm": "EAGLE" if "drafts" in FAULTS else None,
    "api_key": KEY or None,
    "internal_states": [{"avg_spec_accept_length": 2.75 if "drafts" in FAULTS else None}],
}


def draw(*parts: object) -> int:
    return int(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8], 16)


def logprob(ids: list[int], at: int) -> float:
    """Of token `at`, whether it is generated or read."""
    return -11.9 if "flat" in FAULTS else -0.01 - draw("p", ids[: at + 1]) % 100 / 1000


def next_token(ids: list[int], alone: bool, at: int) -> int:
    if "exclamation" in FAULTS:
        return 0
    if FAULTS & {"loop", "dummy"}:
        return at % 2 + 7
    if "one-loop" in FAULTS and ids[0] == ord("T"):
        return 9
    salt = draw("other", time.time_ns()) if "unlike" in FAULTS and not alone else 0
    return draw("t", ids, salt) % 500 + 1


def continuation(prompt: list[int], tokens: int, alone: bool) -> tuple[list[int], list[float]]:
    ids, logprobs = list(prompt), []
    for at in range(tokens):
        ids.append(next_token(ids, alone, at))
        logprobs.append(logprob(ids, len(ids) - 1))
    return ids[len(prompt) :], logprobs


def answer(body: dict, alone: bool) -> tuple[int, dict]:
    name = body["rid"]
    if "error" in FAULTS or ("error-at-once" in FAULTS and not alone):
        return 500, {"error": {"message": f"CUDA error, --api-key {LEAKED} \x1b[31m"}}
    if "one-error" in FAULTS and name.endswith("-1"):
        return 500, {"error": {"message": f"https://user:{LEAKED}@host/"}}
    if "busy" in FAULTS and not alone:
        return 503, {"error": {"message": "The request queue is full."}}
    if "refuses" in FAULTS:
        return 400, {"error": {"message": f"the context is too short: {LEAKED}"}}
    if "no-logprobs" in FAULTS and body.get("return_logprob"):
        return 400, {"error": {"message": "return_logprob is not supported here"}}
    if ("bare" in FAULTS) != ("text" not in body) and "-score-" not in name:
        return 400, {"error": {"message": "text or input_ids?"}}
    prompt = list(body["text"].encode()) if "text" in body else list(body["input_ids"])
    tokens = 0 if "empty" in FAULTS else body["sampling_params"]["max_new_tokens"]
    ids, logprobs = continuation(prompt, tokens, alone)
    given: list[float | None] = list(logprobs)
    if "nan" in FAULTS:
        given = [float("nan")] * len(ids)
    if "null" in FAULTS and given:
        given[-1] = None
    meta: dict = {"id": name, "finish_reason": {"type": "length", "length": tokens}}
    if "abort" in FAULTS:
        meta["finish_reason"] = {"type": "abort", "message": f"gave up: {LEAKED}", "status_code": 500}
    if "drafts" in FAULTS:
        meta["spec_accept_length"] = 2.5
    if body.get("return_logprob"):
        start = body["logprob_start_len"]
        wrong = -9.0 if "itself" in FAULTS else 0.0
        read = [
            [None if at == 0 else logprob(prompt, at) + wrong, prompt[at], None]
            for at in range(start, len(prompt))
        ]
        meta["input_token_logprobs"] = read
        meta["output_token_logprobs"] = [[p, token, None] for p, token in zip(given, ids, strict=True)]
    if "long" in FAULTS:
        meta["padding"] = "x" * (300 << 10)
    text = "!" * len(ids) if "exclamation" in FAULTS else " ".join(map(str, ids))
    out = {"output_ids": ids, "meta_info": meta}
    return 200, out if "bare" in FAULTS else {"text": text, **out}


class Handler(http.server.BaseHTTPRequestHandler):
    """SGLang's paths."""

    def do_GET(self) -> None:
        path = self.path
        if path == "/health":
            if "stuck" in FAULTS and any(one["path"] == "/generate" for one in seen):
                time.sleep(600)
            allowed = not ROOT or self.is_allowed()
            self.give(200 if allowed and not FAULTS & {"ill"} else 503, {})
            return
        self.write_down(path, {})
        if path not in ("/model_info", "/server_info") or "bare-health" in FAULTS:
            self.give(404, {})
        elif not self.is_allowed():
            self.give(401, {"error": "Unauthorized"})
        elif path == "/model_info":
            self.give(200, {"is_generation": "embeds" not in FAULTS, "model_path": "org/model"})
        else:
            self.give(200, INFO)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.write_down(self.path, body)
        if "dies" in FAULTS:
            os._exit(1)
        if "killed" in FAULTS:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULTS & {"hangs", "stuck"}:
            time.sleep(600)
        if not self.is_allowed():
            self.give(401, {"error": "Unauthorized"})
            return
        if "drips" in FAULTS:
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b" ")
                time.sleep(0.05)
        if "nonsense" in FAULTS:
            self.give_bytes(200, b"\xff{[[[[")
            return
        time.sleep(float(value("--think", "0.02")))
        self.give(*answer(body, "-burst-" not in body["rid"]))

    def is_allowed(self) -> bool:
        return not KEY or self.headers.get("authorization") == f"Bearer {KEY}"

    def write_down(self, path: str, body: dict) -> None:
        row = {"path": path, "agent": self.headers.get("user-agent"), "body": body, "at": time.monotonic()}
        with LOCK, Path(FILE).open("a") as file:
            seen.append(row)
            file.write(json.dumps(row) + "\n")

    def give(self, status: int, body: dict) -> None:
        self.give_bytes(status, json.dumps(body).encode())

    def give_bytes(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """One thread a request."""

    daemon_threads = True
    request_queue_size = 64


class Server6(Server):
    """The same on IPv6."""

    address_family = 10


if __name__ == "__main__":
    time.sleep(float(value("--after", "0")))
    host = value("--host", "127.0.0.1")
    server = (Server6 if ":" in host else Server)((host, PORT), Handler)
    if "--ssl" in words:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(value("--ssl", ""), password=value("--ssl-password", "") or None)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()
