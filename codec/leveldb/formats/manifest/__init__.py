"""Manifests: `leveldb.manifest`."""
