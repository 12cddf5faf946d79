# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_meta_properties
  title: 'Kafka identity of a log directory'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: meta_properties
    type: meta_properties
types:
  meta_properties:
    seq:
      - id: properties
        size-eos: true
        doc: 'a Java property file: cluster.id, node.id or broker.id, directory.id, version'
