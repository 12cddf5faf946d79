"""Simulation of a broker's start. It follows upstream's classes."""
