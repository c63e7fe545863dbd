"""Tests of the wheel in dist/ instead of the source: arguments go to pytest."""

import subprocess
import sys

from wheel_env import ROOT, kind, make


def main(arguments: list[str]) -> int:
    python = make()
    if kind(python) != "compiled":
        print("!! the wheel is PLAIN (no C compiler here): the compiled form was NOT tested", file=sys.stderr)
        return 0
    print("testing the compiled wheel", flush=True)
    return subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
