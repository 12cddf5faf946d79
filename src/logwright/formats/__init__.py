"""Output formats of rows: JSON lines, text, CSV, Parquet and Arrow."""
