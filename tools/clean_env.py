"""Virtual environments that contain a distribution and its dependencies, and nothing else."""

import subprocess
import sys
import venv
from pathlib import Path


def version_of(package: Path) -> str:
    """Return the version in a distribution's file name."""
    return package.name.removesuffix(".tar.gz").split("-")[1]


def install(package: Path, environment: Path) -> Path:
    """Install a distribution and its dependencies into a new environment; return the folder of its programs."""
    venv.create(environment, symlinks=True)
    programs = environment / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", str(package)], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    return programs
