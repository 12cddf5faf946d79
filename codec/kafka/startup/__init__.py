"""What a broker does with a partition when it starts, and what its consumers then get: rules, in the order of its own code.

`disk` is the directory that the rules work on, in thought; `loader` is `LogLoader`, `segment` is `LogSegment`, `producers` is
`ProducerStateManager`, `fetch` what a consumer reads; `start` puts them together, as `LogManager` and `UnifiedLog` do.
"""
