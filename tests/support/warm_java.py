"""A Java shared by several programs, one after the other, each as if it had started its own.

Most of the time of a small Spark command is Java's start and its first compilations. PySpark can be directed to a
running Java (`PYSPARK_GATEWAY_PORT`): the command is the same, in its own process, with its own context, which it
creates and stops; only the Java is not fresh.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from polydomo.pipeline import java


class WarmJava:
    """A Java process, started in the folder of relative paths. `settings` are those that Java itself reads."""

    def __init__(self, folder: Path, environment: dict[str, str], *settings: str) -> None:
        import pyspark
        from pyspark.serializers import UTF8Deserializer, read_int

        home = Path(pyspark.__file__).parent
        words = [word for pair in settings for word in ("--conf", pair)]
        with tempfile.TemporaryDirectory(prefix="polydomo-java-") as told:
            info = Path(told, "info")
            self._log = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = subprocess.Popen(
                [home / "bin" / "spark-submit", *words, "pyspark-shell"],
                cwd=folder,
                # As in a process that starts its own Java: see polydomo.pipeline.session.
                env={
                    **environment,
                    "JAVA_HOME": java.home_for(java.find()),
                    "TZ": "UTC",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
                },
                stdin=subprocess.PIPE,  # Java ends when this is closed
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            while not info.exists():
                assert self._process.poll() is None, self.log()
                time.sleep(0.02)
            with info.open("rb") as stream:
                self._port = read_int(stream)
                self._secret = UTF8Deserializer().loads(stream)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a program that uses this Java."""
        return {"PYSPARK_GATEWAY_PORT": str(self._port), "PYSPARK_GATEWAY_SECRET": self._secret}

    def clear(self) -> None:
        """Stop the context of a program that ended without doing so: normally Java would have ended with it."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=self._port, auth_token=self._secret, enable_memory_management=False
            )
        )
        try:
            left = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
            if left.isDefined():
                left.get().stop()
        finally:
            gateway.close()

    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def stop(self) -> None:
        """Kill Java: it has nothing to save."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._log.close()
