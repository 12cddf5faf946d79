"""Framed formats: specifications of frames, and the scanner, the resync and the codec that follow from them."""
