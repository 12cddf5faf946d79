"""Kernels: compilation, machine-level intrinsics, checksums and compressors."""
