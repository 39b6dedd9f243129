"""Messages with a delivery time of their own: RocketMQ's timer topic, wheel and log, and their delivery."""
