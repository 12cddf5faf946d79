# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_index
  title: 'Kafka offset index'
  endian: be
  encoding: UTF-8
doc: 'One batch in every index.interval.bytes of log has an entry.'
seq:
  - id: frames
    type: offset_index_entry
    repeat: eos
types:
  offset_index_entry:
    doc: 'One batch in every index.interval.bytes of log has an entry.'
    seq:
      - id: relative_offset
        type: s4be
        doc: 'last offset of the batch, minus the number in the file''s name'
      - id: position
        type: s4be
        doc: 'byte of the log where the batch starts'
