"""Test data of RocketMQ."""
