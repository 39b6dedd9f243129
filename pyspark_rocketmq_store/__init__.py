"""Lets `spark.read.format("rocketmq_store")` work without registration.

PySpark looks for top-level packages named `pyspark_*` and registers their `DefaultSource`. One that cannot be imported
would spoil the look-up for every other source, so without pyarrow there is simply none here.
"""

try:
    from spark_jobs.rocketmq_store.source import RocketMQStoreDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
