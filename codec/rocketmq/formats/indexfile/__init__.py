"""Index files: `rocketmq.indexfile`."""
