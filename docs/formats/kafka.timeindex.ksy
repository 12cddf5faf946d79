# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_timeindex
  title: 'Kafka time index'
  endian: be
  encoding: UTF-8
doc: 'The last entry of a closed segment holds its largest timestamp.'
seq:
  - id: frames
    type: time_index_entry
    repeat: eos
types:
  time_index_entry:
    doc: 'The last entry of a closed segment holds its largest timestamp.'
    seq:
      - id: timestamp
        type: s8be
        doc: 'largest timestamp of the segment so far, in milliseconds'
      - id: relative_offset
        type: s4be
        doc: 'last offset of the first batch that has it, minus the number in the file''s name'
