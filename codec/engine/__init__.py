"""What systems do alike, once for all of them."""
