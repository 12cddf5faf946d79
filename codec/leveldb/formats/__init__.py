"""The file formats of LevelDB."""
