"""The file formats of ZooKeeper."""
