"""Repair and rebuild a store of RocketMQ."""
