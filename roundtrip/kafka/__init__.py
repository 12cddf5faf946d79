"""What checks the codecs of Kafka: strategies for rows and files, samples, the reference."""
