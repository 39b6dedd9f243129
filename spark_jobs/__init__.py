"""Spark over a RocketMQ store: the data source and the audits that will read it without a broker."""
