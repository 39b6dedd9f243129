"""What people get of an audit: Parquet, a summary on the terminal, and one HTML page.

Everything is made from the plain values of `model`; `overview` alone knows Spark, and takes from the scan what no check
measures: traffic over time, and where on disk the damage is.
"""
