"""Transaction logs: `zookeeper.txnlog`."""
