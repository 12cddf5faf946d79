"""Kernels: how they are compiled, what they need of the machine, checksums and compressors."""
