"""What systems do alike."""
