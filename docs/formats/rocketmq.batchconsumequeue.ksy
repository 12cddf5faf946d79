# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_batchconsumequeue
  title: 'RocketMQ batch consume queue'
  endian: be
  encoding: UTF-8
doc: 'Units are contiguous. A broker finds a message''s unit by binary search on base_offset.'
seq:
  - id: frames
    type: batch_consume_queue_unit
    repeat: eos
types:
  batch_consume_queue_unit:
    doc: 'Units are contiguous. A broker finds a message''s unit by binary search on base_offset.'
    seq:
      - id: physical_offset
        type: s8be
        doc: 'offset of the message in the commit log'
      - id: size
        type: s4be
        doc: 'bytes of the message'
      - id: tags_code
        type: s8be
        doc: 'hash of the tags'
      - id: store_timestamp
        type: s8be
        doc: 'when the broker stored the message, in milliseconds since 1970'
      - id: base_offset
        type: s8be
        doc: 'queue offset of its first message'
      - id: batch_size
        type: s2be
        doc: 'number of messages in the batch'
      - id: compacted_offset
        type: s4be
        doc: '-1'
      - id: reserved
        type: s4be
        doc: '0'
