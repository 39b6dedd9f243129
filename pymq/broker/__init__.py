"""The broker: RocketMQ's requests, topics, groups, clients and configuration, over the native store and transport."""
