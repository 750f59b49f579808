"""A stand-in for the prover, run as a program: writes logs, progress and proof folders as `provefleet bench` does.

What else it does is told by words after `--do`: slow (0.3 s a proof), hang (never ends after the proofs), huge (a line
of 10 MB, invalid UTF-8, NUL), flood:<MiB>, fail (exit 3), broken:<i> (proof i fails), secret:<text> (prints it),
env (prints its environment), grandchild (starts a `sleep` that outlives it).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def write(path: Path, text: str) -> None:
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").rename(path)


def odd_output(words: list[str]) -> None:
    out = sys.stdout.buffer
    for word in words:
        name, _, value = word.partition(":")
        if name == "huge":
            out.write(b"x" * 10_000_000 + b"\n" + b"\xff\xfe\x00bad\n")
        elif name == "flood":
            line = os.urandom(512).hex().encode() + b"\n"
            for _ in range(int(value) * 1024):
                out.write(line)
        elif name == "secret":
            out.write(b"the token is " + value.encode() + b"\n")
        elif name == "env":
            out.write(json.dumps(dict(os.environ)).encode() + b"\n")
        elif name == "grandchild":
            subprocess.Popen(["sleep", "300"])
        out.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wtns", action="append", default=[])
    parser.add_argument("--zkey", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--do", action="append", default=[])
    args = parser.parse_args()
    print(f"payload begins, key has {Path(args.zkey).stat().st_size} bytes", flush=True)
    odd_output(args.do)
    with args.progress.open("a", buffering=1) as progress:

        def tell(**event: object) -> None:
            progress.write(json.dumps(event) + "\n")

        total = len(args.wtns)
        tell(event="start", total=total)
        tell(event="warm_up", ms=1.0)
        for i, witness in enumerate(args.wtns):
            time.sleep(0.3 if "slow" in args.do else 0.01)
            folder = args.out / str(i)
            folder.mkdir()
            ok = f"broken:{i}" not in args.do
            if ok:
                digest = hashlib.sha256(Path(witness).read_bytes()).hexdigest()
                write(folder / "proof.json", json.dumps({"pi_a": [digest], "protocol": "groth16"}))
                write(folder / "public.json", json.dumps([digest]))
                write(folder / "timings.json", json.dumps({"ms": 10.0, "msm": 5.0}))
            else:
                write(folder / "error.txt", "the witness does not satisfy the circuit")
            tell(event="proof", index=i, ok=ok, ms=10.0, done=i + 1, total=total, timings_ms={})
            print(f"proof {i}: {'done' if ok else 'failed'}", flush=True)
        tell(event="end", done=total)
    if "hang" in args.do:
        while True:
            print("still here", time.time(), flush=True)
            time.sleep(0.1)
    print("payload ends without a newline", end="", flush=True)
    return 3 if "fail" in args.do else 0


if __name__ == "__main__":
    sys.exit(main())
