"""A store of RocketMQ as a tree of files."""
