# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_indexfile
  title: 'RocketMQ index file'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: index_file
    type: index_file
types:
  index_file:
    seq:
      - id: begin_timestamp
        type: s8be
        doc: 'store time of the first entry, in milliseconds since 1970'
      - id: end_timestamp
        type: s8be
        doc: 'store time of the last entry'
      - id: begin_physical_offset
        type: s8be
        doc: 'offset of the first entry''s message in the commit log'
      - id: end_physical_offset
        type: s8be
        doc: 'offset of the last entry''s message'
      - id: hash_slot_count
        type: s4be
        doc: 'number of slots in use'
      - id: index_count
        type: s4be
        doc: 'number of the next entry, which is the number of entries plus 1'
      - id: rest
        size-eos: true
        doc: 'slots, then entries'
