"""What people get of an audit: Parquet, a summary on the terminal, and one HTML page. Nothing here needs Spark."""
