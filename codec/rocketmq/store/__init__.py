"""A RocketMQ store: its files, views, checks and writer."""
