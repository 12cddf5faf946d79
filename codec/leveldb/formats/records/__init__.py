"""The record format that logs and manifests share."""
