"""What a broker does when it opens a store, after upstream's own classes."""
