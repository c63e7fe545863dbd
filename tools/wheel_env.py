"""An environment in build/wheel-env with the wheel from dist/ and all other packages from this one.

The wheel's folder comes first on the path, so `import polydomo` finds the compiled package. Prints the environment's
interpreter, with which tests and benchmarks of the compiled form are run.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "wheel-env"
CHECK = """
import pathlib, sys, polydomo, polydomo.core.broker as hot
assert pathlib.Path(sys.prefix) in pathlib.Path(polydomo.__file__).parents, f"not the wheel: {polydomo.__file__}"
print("plain" if hot.__file__.endswith(".py") else "compiled")
"""


def make() -> Path:
    """Create the environment again, with the current wheel."""
    wheel = next((ROOT / "dist").glob("polydomo-*.whl"), None)
    if wheel is None:
        sys.exit("no wheel in dist/: run 'make wheel' first")
    shutil.rmtree(FOLDER, ignore_errors=True)
    venv.create(FOLDER, symlinks=True)
    python = FOLDER / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site, "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return python


def kind(python: Path) -> str:
    """Return `compiled` or `plain`; fail if another package is imported."""
    return subprocess.run([python, "-c", CHECK], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    print(make())
