"""Write-ahead logs: `leveldb.log`."""
