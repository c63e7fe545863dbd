"""Software bill of materials of the wheel in dist/, in CycloneDX's JSON, next to it.

It lists what an installation of the wheel contains: the wheel is installed into an empty virtual environment with its
dependencies from the package index. `release_check.py` does the same for each distribution that it checks.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from clean_env import install, version_of

ROOT = Path(__file__).resolve().parent.parent

# Prints name and version of every distribution that an interpreter finds.
INSTALLED = """
import importlib.metadata, json
print(json.dumps([[found.name, found.version] for found in importlib.metadata.distributions()]))
"""


def main() -> int:
    """Write the bill of the wheel in dist/."""
    wheel = next((ROOT / "dist").glob("polydomo-*.whl"), None)
    if wheel is None:
        sys.exit("no wheel in dist/: run 'make wheel' first")
    with tempfile.TemporaryDirectory(prefix="polydomo-sbom-") as folder:
        programs = install(wheel, Path(folder, "env"))
        print(write(programs / "python", wheel))
    return 0


def write(python: Path, package: Path) -> Path:
    """Write the bill of an environment with this distribution next to it, and return its path.

    Exits with a message if the bill is incomplete.
    """
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", str(python)]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    command += ["--spec-version", "1.6", "--output-reproducible", "--output-format", "JSON"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"cyclonedx-py failed:\n{done.stderr}")
    bill = json.loads(done.stdout)
    bill["metadata"]["component"]["version"] = version_of(package)  # pyproject.toml takes it from the code
    found = subprocess.run([str(python), "-c", INSTALLED], check=True, capture_output=True, text=True)
    missing = missing_from(bill, [(name, version) for name, version in json.loads(found.stdout)])
    if missing:
        sys.exit(f"the SBOM of {package.name} lacks {', '.join(missing)}")
    path = package.with_name(f"{package.name}.cdx.json")
    path.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path


def missing_from(bill: dict[str, Any], installed: list[tuple[str, str]]) -> list[str]:
    """Return the installed distributions that a bill does not list with their version."""
    components = [bill["metadata"]["component"], *bill.get("components", [])]
    listed = {(_normal(one["name"]), one.get("version")) for one in components}
    return sorted(
        f"{name} {version}" for name, version in installed if (_normal(name), version) not in listed
    )


def _normal(name: str) -> str:
    """Return the form in which names of packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
