"""A Spark session for the jobs here: quiet, on loopback, small, with `rocketmq_store` registered.

    spark = session()                        # two threads of this machine, 2 GB
    spark = session(master="local[8]", memory="8g")

Under `spark-submit` the cluster's own settings hold: master, memory and addresses are left as they were given there,
and only what the jobs rely on is set. A session that is running already is used as it is.

PYMQ_SPARK_LOG_LEVEL=warn lets the JVM talk, PYMQ_SPARK_TRACEBACK=1 lets errors of Python workers show where they arose.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pymq.errors import PymqError
from spark_jobs.java import find_java_home, launchable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[2]"
MEMORY: Final = "2g"
LOOPBACK: Final = "127.0.0.1"
LOGGING: Final = Path(__file__).resolve().parent / "log4j2.properties"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
TRACEBACK: Final = "PYMQ_SPARK_TRACEBACK"

# What the jobs rely on, wherever they run.
RELIED_ON: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
# A Spark of one's own leaves nothing behind in the working directory.
OWN: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.maxResultSize": "0",
}
# On this machine alone, nothing listens beyond loopback.
ALONE: Final = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}


class SparkMissingError(PymqError):
    """pyspark is not installed, or did not start; says what to do."""


def session(master: str = LOCAL, memory: str = MEMORY, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session; *settings* are Spark's own, and win; options of Java are added to those here.

    Raises:
        SparkMissingError: pyspark is not there, or did not start.
        JavaNotFoundError: no Java 17 or newer.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissingError(f"Spark is not installed ({error}); pip install 'pymq[spark]'") from None
    from spark_jobs.rocketmq_store.source import RocketMQStoreDataSource

    submitted = is_submitted()
    chosen = dict(RELIED_ON)
    if not submitted:
        chosen |= OWN | own_settings(memory) | (ALONE if is_local(master) else {})
    for name, value in (settings or {}).items():
        chosen[name] = f"{chosen[name]} {value}" if name == JAVA_OPTIONS and name in chosen else value
    builder = SparkSession.builder.appName("pymq")
    if not submitted or master != LOCAL:
        builder = builder.master(master)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        with prepared(master, launch=not submitted and SparkSession.getActiveSession() is None):
            spark = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError) as error:
        raise SparkMissingError(f"Spark did not start ({error}); PYMQ_SPARK_LOG_LEVEL=info shows more") from None
    spark.dataSource.register(RocketMQStoreDataSource)
    return spark


def is_submitted() -> bool:
    """Whether spark-submit started this program: then there is a JVM already, set up as its user wants it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str) -> bool:
    """Whether all of Spark runs in one process here."""
    return master == "local" or master.startswith("local[")


def own_settings(memory: str) -> dict[str, str]:
    """What depends on the call, on where this is installed and on the environment."""
    return {
        "spark.driver.memory": memory,
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.sql.execution.pyspark.udf.hideTraceback.enabled": str(not os.environ.get(TRACEBACK)).lower(),
        # With it each function of a column tells the JVM from which line it was called: three calls for one, thousands
        # in an audit, and seconds of each.
        "spark.python.sql.dataFrameDebugging.enabled": str(bool(os.environ.get(TRACEBACK))).lower(),
    }


@contextmanager
def prepared(master: str, *, launch: bool) -> Iterator[None]:
    """The environment a JVM is started in; as it was, afterwards."""
    if not launch:
        yield
        return
    with launchable(find_java_home()) as java_home:
        wanted = {"JAVA_HOME": str(java_home), "PYTHONPATH": worker_path()}
        wanted |= {"SPARK_LOCAL_IP": LOOPBACK} if is_local(master) else {}
        wanted |= {name: os.environ.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def worker_path() -> str:
    """PYTHONPATH on which Python workers find these modules, also when they run from a checkout."""
    import pymq

    installed = {Path(name).resolve() for name in [*site.getsitepackages(), site.getusersitepackages()]}
    homes = [Path(module).resolve().parent.parent for module in (__file__, str(pymq.__file__))]
    added = [str(home) for home in dict.fromkeys(homes) if home not in installed]
    return os.pathsep.join([*added, *filter(None, [os.environ.get("PYTHONPATH")])])
