"""Test support for the RocketMQ codecs: strategies for rows and files, samples, and reference decoders."""
