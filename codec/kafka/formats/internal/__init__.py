"""The records of Kafka's internal topics: their schemas, decoder and encoder, and the tables of the decoded views."""
