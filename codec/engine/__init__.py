"""Engines that all systems share: fold, derive, startup, repair, reencode and merge."""
