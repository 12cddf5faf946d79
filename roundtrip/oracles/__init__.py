"""The real systems as judges: their own classes, tools and servers, asked from Python.

One module a system. Each needs Java 17 and Maven, fetches the system's jars once into the user's cache, and says in one
sentence (`available()`) why it can't be had.
"""
