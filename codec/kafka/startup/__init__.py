"""Simulate a broker that starts on a partition and a consumer that reads it, in the order of the broker's own code.

The simulation changes an overlay of the directory. `loader` is `LogLoader`, `segment` is `LogSegment`, `producers` is
`ProducerStateManager`, and `fetch` is the consumer. `start` combines them, as `LogManager` and `UnifiedLog` do. `server` simulates
the start before any log is loaded.
"""
