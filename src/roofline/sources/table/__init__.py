"""Tables of ops: CSV, JSON, JSON Lines and Parquet."""
