"""A RocketMQ store, or a dump of one, as Spark tables."""
