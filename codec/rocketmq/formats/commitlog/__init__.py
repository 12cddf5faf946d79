"""Commit logs: `rocketmq.commitlog`."""
