"""What rows look like outside: JSON lines, text, CSV, Parquet and Arrow."""
