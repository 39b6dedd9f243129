"""Messages that are delivered later, by level: SCHEDULE_TOPIC_XXXX and who empties it."""
