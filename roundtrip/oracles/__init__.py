"""The real systems as judges: their own classes, tools and servers, asked from Python.

One module per system. Each needs Java 17 and Maven, and fetches the system's jars once into the user's cache.
`available()` returns the reason if it cannot be used.
"""
