# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_partition_metadata
  title: 'Kafka topic id of a partition'
  endian: be
  encoding: UTF-8
doc: 'Two lines. The second one ends with the file.'
seq:
  - id: partition_metadata
    type: partition_metadata
types:
  partition_metadata:
    doc: 'Two lines. The second one ends with the file.'
    seq:
      - id: version_name
        type: str
        terminator: 58
        eos-error: true
        doc: 'ignored'
      - id: version_name_end
        size: 1
        doc: 'behind version_name'
      - id: version
        type: str
        terminator: 10
        eos-error: false
        doc: '0'
      - id: topic_id_name
        type: str
        terminator: 58
        eos-error: true
        doc: 'ignored'
      - id: topic_id_name_end
        size: 1
        doc: 'behind topic_id_name'
      - id: topic_id
        type: str
        terminator: 10
        eos-error: false
        doc: 'UUID of the topic, URL-safe base64 without padding'
