"""Simulate a broker that starts on a partition, and a consumer that reads it: the rules in the order of the broker's own code.

They change an overlay of the directory. `loader` is `LogLoader`, `segment` is `LogSegment`, `producers` is `ProducerStateManager`, `fetch`
is what a consumer reads. `start` puts them together, as `LogManager` and `UnifiedLog` do; `server` is the start before any log is loaded.
"""
